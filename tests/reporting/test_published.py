from rs.reporting.published import published


def test_a_published_figure_stands_in_every_table_alike():
    """The main table, the table of cost and the appendix print the same ACRs and clean accuracies."""
    figures = published("cifar10")
    acrs = figures[figures["metric"] == "acr"]
    alike = acrs[acrs["table"] != "table_wt_ensemble"].groupby(["method", "sigma"])["value"]
    assert (alike.nunique() == 1).all()
    assert (alike.size() >= 2).sum() >= 12
    main_table = figures[(figures["table"] == "table_main") & (figures["metric"] == "clean_accuracy")]
    at_zero = figures[(figures["metric"] == "certified_accuracy") & (figures["radius"] == 0)]
    both = main_table.merge(at_zero, on=["method", "sigma"])
    assert len(both) == 24
    assert both["value_x"].tolist() == both["value_y"].tolist()


def test_published_accuracies_fall_with_the_radius_and_are_shares():
    figures = published()
    assert not figures.drop(columns="radius").isna().any(axis=None)
    shares = figures[figures["unit"] == "fraction"]["value"]
    assert shares.between(0, 1).all()
    lines = figures[figures["metric"] == "certified_accuracy"].sort_values("radius").groupby(["sigma", "method"])
    assert all((line["value"].diff().dropna() <= 0).all() for _, line in lines)
