"""Networks: architectures, checkpoints (of this project and published ones), names of the backends they run on."""

from rs import lazily

_NAMES = {
    **dict.fromkeys(
        ("ARCHITECTURES", "BasicBlock", "CifarResNet", "LeNet", "Logits", "Normalize", "SmallNet", "build"),
        "rs.models.architectures",
    ),
}
__all__ = [*_NAMES]
__getattr__ = lazily(__name__, _NAMES)
