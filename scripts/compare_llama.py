#!/usr/bin/env python3
"""Compares Strata's whole models with llama.cpp's: tokens, greedy text, perplexity.

    compare_llama.py truth MODEL.gguf TEXT.txt TRUTH.json     needs llama-cpp-python and numpy
    compare_llama.py compare MODEL.gguf TEXT.txt TRUTH.json   needs target/release/strata, or STRATA

The first writes what llama.cpp says, the second what Strata says beside it. The figures of docs/models.md
come from these two.
"""

import json, math, os, struct, subprocess, sys, tempfile

CONTEXT, NEW = 1024, 32

# Ten texts in six languages and more scripts: contractions, digits, white space, combining marks, emoji.
TEXTS = {
    "en": "The quick brown fox jumps over 13 lazy dogs, and it's 3.14159 o'clock!\n\n  Don't they'll we've",
    "code": "def f(x):\n    return x**2 + 1  # comment\n\nprint(f(10))\t\ttabs",
    "de": "Größe und Übermut: „Straßenbahn“ fährt um 12:30 Uhr nach Köln–Ehrenfeld.",
    "fr": "L'été dernier, j'ai mangé des crêpes à Besançon ; c'était délicieux ! 1 234,50 €",
    "zh": "人工智能正在改变世界。2026年11月30日,我们在北京见面。",
    "ja": "東京タワーは高さ333メートルです。カタカナとひらがな、漢字が混ざっています。",
    "ru": "Москва — столица России; население более 13 миллионов человек.",
    "ar": "اللغة العربية جميلة، وعدد حروفها 28 حرفًا.",
    "hi": "नमस्ते दुनिया! मेरा नाम राम है और मैं 25 साल का हूँ।",
    "emoji": "👩‍👩‍👧‍👦 family 🏳️‍🌈 flag e\u0301 vs é ½ \u3000 full\r\nCRLF <|im_end|> x",
}

PROMPTS = [
    "The capital of France is", "Once upon a time", "import numpy as np\n", "The meaning of life is",
    "In 1969, humans", "Water boils at", "A list of fruits: apple,", "def fibonacci(n):",
    "Dear Sir or Madam,", "The best way to learn programming is", "Il était une fois",
    "Die Hauptstadt von Deutschland", "To be, or not to be", "E = mc^2 means", "Roses are red,",
    "My favorite book is", "The stock market", "Q: What is 2+2?\nA:", "Breaking news:",
    "The first step in cooking pasta",
]


def truth(path, text, out):
    import numpy as np
    from llama_cpp import Llama

    model = Llama(path, n_ctx=CONTEXT, n_batch=512, n_threads=os.cpu_count(), logits_all=True, verbose=False)
    adds_bos = model._model.add_bos_token()
    encode = lambda text: model.tokenize(text.encode(), add_bos=False, special=False)
    start = [model.token_bos()] if adds_bos else []
    result = {"texts": {name: encode(text) for name, text in TEXTS.items()}, "adds_bos": adds_bos, "greedy": []}
    for prompt in PROMPTS:
        ids = start + encode(prompt)
        model.reset()
        model.eval(ids)
        tokens, gaps = [], []
        for at in range(NEW):
            logits = model.scores[model.n_tokens - 1]
            first, second = (int(i) for i in np.argsort(-logits, kind="stable")[:2])
            tokens.append(first)
            gaps.append([float(logits[first]), second, float(logits[second])])
            if at + 1 < NEW:
                model.eval([first])
        result["greedy"].append({"prompt": prompt, "ids": ids, "tokens": tokens, "gaps": gaps})
    json.dump(result, open(out, "w"))
    window = CONTEXT - len(start)
    ids = encode(open(text).read())
    nll = count = 0
    for at in range(0, len(ids), window):
        part = start + ids[at : at + window]
        model.reset()
        model.eval(part)
        logits = model.scores[: len(part) - 1].astype(np.float64)
        most = logits.max(1)
        log_sum = most + np.log(np.exp(logits - most[:, None]).sum(1))
        nll += float((log_sum - logits[np.arange(len(part) - 1), part[1:]]).sum())
        count += len(part) - 1
        # Written after each window: what is there when it is ended counts.
        result["perplexity"] = {"tokens": count, "nll": nll, "of": len(ids)}
        json.dump(result, open(out, "w"))


def strata(command, path, *args):
    program = os.environ.get("STRATA", "target/release/strata")
    run = [program, command, "--backend", "cpu", "--model", path, "--json", *args]
    return json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)


def compare(path, text, out):
    known = json.load(open(out))
    start = 1 if known["adds_bos"] else 0
    same = 0
    for name, ids in known["texts"].items():
        own = strata("generate", path, "-n", "0", "--prompt", TEXTS[name])["prompt_tokens"][start:]
        same += own == ids
        if own != ids:
            print(f"text {name}: {own} instead of {ids}")
    print(f"tokens: {same} of {len(known['texts'])} texts alike")
    same = 0
    for case in known["greedy"]:
        own = strata("generate", path, "-n", str(NEW), "--prompt", case["prompt"])
        assert own["prompt_tokens"] == case["ids"], case["prompt"]
        # A model may end the text, which the reference does not stop at.
        pairs = list(zip(own["tokens"], case["tokens"]))
        parted = next((at for at, (own, known) in enumerate(pairs) if own != known), None)
        if parted is None:
            same += 1
            continue
        first, second, runner_up = case["gaps"][parted]
        choice = "its second" if pairs[parted][0] == second else "another"
        print(f"{case['prompt']!r}: parts at token {parted}, where llama.cpp has {first:.4f} and {runner_up:.4f} ({choice})")
    print(f"greedy: {same} of {len(known['greedy'])} prompts give the same {NEW} tokens")
    if "perplexity" not in known:
        return
    theirs = known["perplexity"]
    # A little more than was scored there, if that is not all.
    whole = open(text).read()
    part = whole[: int(len(whole) * min(1.0, 1.2 * theirs["tokens"] / theirs["of"] + 0.05))]
    with tempfile.TemporaryDirectory() as folder:
        cut, scores = os.path.join(folder, "text"), os.path.join(folder, "scores.npy")
        open(cut, "w").write(part)
        strata("score", path, "--context", str(CONTEXT), "--out", scores, cut)
        raw = open(scores, "rb").read()
        at = 10 + int.from_bytes(raw[8:10], "little")
        own = struct.unpack(f"<{(len(raw) - at) // 4}f", raw[at:])[: theirs["tokens"]]
    own, other = (math.exp(nll / theirs["tokens"]) for nll in (-math.fsum(own), theirs["nll"]))
    print(f"perplexity of {theirs['tokens']} tokens: {own:.4f}, llama.cpp {other:.4f}, {100 * (own / other - 1):+.2f}%")


if __name__ == "__main__":
    {"truth": truth, "compare": compare}[sys.argv[1]](*sys.argv[2:5])
