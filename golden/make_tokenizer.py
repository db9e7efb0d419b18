"""Makes the golden tokens of CLIP's tokenizer, with transformers, on a small vocabulary that is trained here.

The vocabulary has every byte, as the published one has, so that only its merges are fewer.
"""

import json
import random

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import CLIPTokenizer

import fixtures

FOLDER = "crates/models/tests/fixtures/tokenizer"
LIMIT = 400 << 10
LENGTH = 77

SUBJECTS = [
    "a cat",
    "an astronaut",
    "Zürich at dusk",
    "the old bridge",
    "my grandmother's garden",
    "two dogs",
    "ein Haus",
]
STYLES = ["in the style of Van Gogh", "watercolour", "4k", "8K UHD", "trending on artstation", "f/1.8 85mm", "c. 1890"]
MARKUP = [
    "<b>bold</b>",
    "<lora:add_detail:0.8>",
    "(masterpiece:1.2)",
    "[[blurry]]",
    "&amp;&lt;",
    "{red|blue}",
    "#tag_1",
]
FOREIGN = [
    "一只猫在月光下",
    "水墨画\uff0c山水",
    "ラーメンを食べる犬",
    "кошка на крыше",
    "قطة على السطح",
    "बिल्ली छत पर",
    "แมวบนหลังคา",
    "고양이 사진",
    "γάτα ΣΟΦΟΣ",
    "İstanbul \u0131\u015f\u0131klar\u0131",
    "naïve café",
    "nai\u0308ve cafe\u0301",
    "Straße ẞ",
    "ﬁne ﬂow",
    "Ⅷ ½ ² ٣ ५",
]
EMOJI = ["😀", "👩‍🚀", "🏳️‍🌈", "❤️", "🇨🇭", "🐱🐶", "1️⃣", "✨✨✨"]
SPACES = [" ", "  ", "\t", "\n", "\u3000", "\u00a0", "\u200b", "\u2028", "\r\n"]
CONTRACTIONS = ["it's", "We'll", "they've", "I'm", "can't", "you'd", "we're", "rock'n'roll", "'tis", "'S", "''s"]
SPECIAL = ["<|endoftext|>", "<|startoftext|>", "a<|endoftext|>b", "<|endoftext|", "|>"]
ODD = [
    "\u0000",
    "\u0007",
    "\ufeff",
    "\ufffd",
    "\U0010fffd",
    "a\u0301\u0302",
    "\u0301",
    "-" * 40,
    "a" * 90,
    "…—–",
    "\u2019“”",
]
ALL = [SUBJECTS, STYLES, MARKUP, FOREIGN, EMOJI, CONTRACTIONS, SPECIAL, ODD]


def strings(count):
    """Every string above, and as many made of them as are missing."""
    chosen = random.Random(7)
    result = ["", " ", "!"] + [string for group in ALL for string in group]
    words = [word for group in (SUBJECTS, STYLES, FOREIGN) for string in group for word in string.split()]
    # Far more than fit.
    result += [" ".join(chosen.choice(words) for _ in range(300)) for _ in range(3)]
    while len(result) < count:
        parts = [chosen.choice(chosen.choice(ALL)) for _ in range(chosen.randint(1, 5))]
        text = parts[0]
        for part in parts[1:]:
            text += chosen.choice(["", ", ", " ", chosen.choice(SPACES)]) + part
        result.append(text)
    return result


def trained():
    """A vocabulary and its merges, as `vocab.json` and `merges.txt` have them."""
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    words = Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+")
    split = pre_tokenizers.Split(words, behavior="removed", invert=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=1400, initial_alphabet=alphabet, end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(SUBJECTS * 3 + STYLES * 3 + FOREIGN + EMOJI * 2 + CONTRACTIONS, trainer)
    merges = [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    tokens = alphabet + [f"{letter}</w>" for letter in alphabet]
    tokens += [left + right for left, right in merges] + ["<|startoftext|>", "<|endoftext|>"]
    tokens = list(dict.fromkeys(tokens))
    return {token: i for i, token in enumerate(tokens)}, merges


def known():
    """The vocabulary that was trained once: of pairs that are equally frequent, training takes any."""
    folder = fixtures.ROOT / FOLDER
    if not (folder / "merges.txt").exists():
        return trained()
    lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    return vocabulary, [tuple(line.split(" ")) for line in lines]


def main():
    out = fixtures.folder(__doc__, FOLDER)
    vocabulary, merges = known()
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=LENGTH)
    texts = strings(1000)
    cut = tokenizer(texts, padding="max_length", truncation=True, max_length=LENGTH)["input_ids"]
    whole = tokenizer(texts, add_special_tokens=False)["input_ids"]
    # A prompt is its tokens between begin and end, cut and padded: only the tokens are stored.
    begin, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    for prompt, tokens in zip(cut, whole, strict=True):
        kept = [begin, *tokens[: LENGTH - 2], end]
        assert prompt == kept + [end] * (LENGTH - len(kept))
    dump = {"ensure_ascii": False, "separators": (",", ":")}
    (out / "vocab.json").write_text(json.dumps(vocabulary, **dump), encoding="utf-8")
    lines = "\n".join(f"{left} {right}" for left, right in merges)
    (out / "merges.txt").write_text(f"#version: 0.2\n{lines}\n", encoding="utf-8")
    cases = [{"text": text, "tokens": tokens} for text, tokens in zip(texts, whole, strict=True)]
    fixtures.write_cases(out / "cases.json", cases)
    # Stable Diffusion 2.1 pads with a token that texts have too, where it means the padding.
    padded = CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=LENGTH, pad_token="!")
    texts = [text.replace(" ", mark, 2) + mark for mark in ("!", " ! ", "!!") for text in texts[:80]]
    tokens = padded(texts, add_special_tokens=False)["input_ids"]
    cases = [{"text": text, "tokens": tokens} for text, tokens in zip(texts, tokens, strict=True)]
    fixtures.write_cases(out / "padded.json", cases)
    fixtures.check_size(out, LIMIT)
    print(f"{len(vocabulary)} tokens, {len(merges)} merges, {sum(map(len, whole))} tokens in {len(texts)} strings")


if __name__ == "__main__":
    main()
