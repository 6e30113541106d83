"""Networks: architectures, checkpoints (of this project and published ones), names of the backends they run on."""
