"""Logits of llama.cpp for the models of `model/tests/architectures.rs`.

    STRATA_MADE_MODELS=DIR cargo test -p strata-model --test architectures models_for_another_program
    python model/tests/vectors/architectures/reference.py DIR        (numpy, llama-cpp-python 0.3.36)

Writes NAME.npy: logits of the F32 file, cache in f32, without flash attention; and reference.json: how far from
those (relative rms) it is with the Q8_0 file as it runs it by default.
"""

import json
import pathlib
import sys

import numpy as np
from llama_cpp import Llama

source, here = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).parent
told = json.loads((source / "models.json").read_text())


def logits(path, **options):
    model = Llama(str(path), n_ctx=64, n_threads=2, logits_all=True, verbose=False, **options)
    model.eval(told["ids"])
    return np.array(model.scores[told["kept"]], dtype="<f4")


distances = {}
for form, name in told["forms"].items():
    truth = logits(source / f"{name}.f32.gguf", type_k=0, type_v=0, flash_attn=False)
    given = logits(source / f"{name}.q8_0.gguf")
    assert np.isfinite(truth).all(), form
    off = np.sqrt(((given - truth).astype("f8") ** 2).sum() / (truth.astype("f8") ** 2).sum())
    distances[form] = round(float(off), 6)
    np.save(here / f"{name}.npy", truth)
    print(form, distances[form], flush=True)
(here / "reference.json").write_text(json.dumps(distances, indent=2) + "\n")
