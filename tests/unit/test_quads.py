import math

import torch

from conceptbind.analysis.quads import GROUP_CHANCE, IMAGE_CHANCE, TEXT_CHANCE, judge_quads, quads_right


def test_scores_follow_the_definition():
    generator = torch.Generator().manual_seed(0)
    images, texts = (
        torch.nn.functional.normalize(torch.randn(200, 2, 6, generator=generator), dim=2) for _ in range(2)
    )
    found = judge_quads(images, texts)
    for q in range(200):
        s = {(c, i): float(texts[q, c] @ images[q, i]) for c in (0, 1) for i in (0, 1)}
        text = s[0, 0] > s[1, 0] and s[1, 1] > s[0, 1]
        image = s[0, 0] > s[0, 1] and s[1, 1] > s[1, 0]
        assert (bool(found.text[q]), bool(found.image[q])) == (text, image)
    scores = found.scores()
    assert scores.group == float((found.text & found.image).double().mean())
    assert scores.text != scores.image


def test_chance_is_that_of_random_scores():
    n = 40_000
    found = quads_right(torch.rand(n, 2, 2, generator=torch.Generator().manual_seed(1))).scores()
    for share, chance in (
        (found.text, TEXT_CHANCE),
        (found.image, IMAGE_CHANCE),
        (found.group, GROUP_CHANCE),
    ):
        assert abs(share - chance) < 4 * math.sqrt(chance * (1 - chance) / n)


def test_a_caption_preferred_whatever_is_shown_scores_nothing():
    # column 0 always wins: right for picture 0, wrong for picture 1
    found = quads_right(torch.tensor([[[0.9, 0.1], [0.8, 0.2]]]))
    assert (found.scores().text, found.scores().image) == (0, 1)


def test_ties_do_not_count_and_no_quad_has_no_score():
    found = quads_right(torch.ones(3, 2, 2))
    assert found.scores().group == 0
    none = found.scores(torch.zeros(3, dtype=torch.bool))
    assert math.isnan(none.text)
    assert none.n == 0
