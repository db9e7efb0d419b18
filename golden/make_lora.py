"""Makes the golden results of LoRA: what peft merges into a small UNet and text encoder. See README.md.

The model is the preset `live`, with weights made from their names. Two LoRA files are made here, one with the names of
diffusers and peft, one with those of kohya, and what the networks give with them is stored. The layers of peft are what
diffusers' `fuse_lora` merges; they are made here by hand, since diffusers 0.42 loses the alphas of kohya's files, and
with transformers 5 the layers of text encoders.
"""

import json

import torch
from diffusers import UNet2DConditionModel
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from transformers import CLIPTextConfig, CLIPTextModel

import fixtures
import networks
import synthetic
from ops.layouts import images_first, images_last

LIMIT = 400 << 10
PRESET = json.loads((fixtures.ROOT / "crates/models/presets/live.json").read_text())
LINEAR = ("to_q", "to_k", "to_v", "to_out.0", "proj_in", "ff.net.0.proj", "ff.net.2", "time_emb_proj")
CONVOLUTIONS = ("conv1", "conv_shortcut", "downsamplers.0.conv")
TEXT = ("q_proj", "out_proj", "fc1")


def model():
    """The networks with synthetic weights, by their names in a pipeline."""
    unet = UNet2DConditionModel(**{k: v for k, v in PRESET["unet"].items() if k != "_class_name"})
    config = {k: v for k, v in PRESET["text_encoder"].items() if k != "architectures"}
    text = CLIPTextModel(CLIPTextConfig(**config))
    for network in (unet, text):
        network.float().eval()
    synthetic.fill(unet)
    # transformers 5 has the names without their common beginning, which files have.
    has_prefix = any(name.startswith("text_model.") for name in text.state_dict())
    synthetic.fill(text, "" if has_prefix else "text_model.")
    return {"unet": unet, "text_encoder": text}


def matrices(name, weight, rank):
    """The two matrices of a module, as half-precision numbers."""
    down = torch.from_numpy(synthetic.tensor(f"{name}/down.weight", (rank, *weight.shape[1:])))
    ones = (1,) * (weight.ndim - 2)
    up = torch.from_numpy(synthetic.tensor(f"{name}/up.weight", (weight.shape[0], rank, *ones)))
    return down.half(), up.half()


def modules(pipe):
    """(part, layer, weight) of what is changed: some of both networks, at some depths."""
    for layer, module in pipe["unet"].named_modules():
        chosen = layer.startswith(("down_blocks.0", "mid_block", "up_blocks.3"))
        if chosen and layer.endswith(LINEAR + CONVOLUTIONS):
            yield "unet", layer, module.weight
    for layer, module in pipe["text_encoder"].named_modules():
        if layer.endswith(TEXT):
            yield "text_encoder", layer, module.weight


def in_file(part, layer):
    """A layer's name in a file."""
    return f"text_model.{layer.removeprefix('text_model.')}" if part == "text_encoder" else layer


def loras(pipe):
    """By file, its modules: (part, layer) to down, up and alpha."""
    result = {"peft": {}, "kohya": {}}
    for i, (part, layer, weight) in enumerate(modules(pipe)):
        # Without alpha: the rank is the scale.
        result["peft"][part, layer] = (*matrices(f"peft/{layer}", weight, 4), None)
        result["kohya"][part, layer] = (*matrices(f"kohya/{layer}", weight, 2 + i % 3), 1.0 + i % 4)
    return result


def peft_file(lora):
    state = {}
    for (part, layer), (down, up, _) in lora.items():
        name = f"{part}.{in_file(part, layer)}"
        state[f"{name}.lora_A.weight"], state[f"{name}.lora_B.weight"] = down, up
    return state


def kohya_file(lora):
    state = {}
    for (part, layer), (down, up, alpha) in lora.items():
        name = f"lora_{'unet' if part == 'unet' else 'te'}_{in_file(part, layer).replace('.', '_')}"
        state[f"{name}.lora_down.weight"], state[f"{name}.lora_up.weight"] = down, up
        state[f"{name}.alpha"] = torch.tensor(alpha)
    return state


CASES = {"plain": {}, "peft": {"peft": 0.8}, "kohya": {"kohya": 1.2}, "both": {"peft": 0.7, "kohya": -0.4}}


def add(network, part, name, lora, strength):
    """Gives the network the layers of a LoRA."""
    own = {layer: matrices for (of, layer), matrices in lora.items() if of == part}
    ranks = {layer: len(down) for layer, (down, _, _) in own.items()}
    alphas = {layer: ranks[layer] if alpha is None else alpha for layer, (_, _, alpha) in own.items()}
    config = LoraConfig(r=1, lora_alpha=1, target_modules=list(own), rank_pattern=ranks, alpha_pattern=alphas)
    inject_adapter_in_model(config, network, adapter_name=name)
    for layer, (down, up, _) in own.items():
        module = network.get_submodule(layer)
        for matrix, value in ((module.lora_A[name].weight, down), (module.lora_B[name].weight, up)):
            assert matrix.shape == value.shape
            matrix.data.copy_(value.float())
        module.set_scale(name, strength)


def run(name, strengths, files, results):
    pipe = model()
    for part, network in pipe.items():
        for file, strength in strengths.items():
            add(network, part, file, files[file], strength)
        for module in network.modules():
            if isinstance(module, LoraLayer):
                module.merge(adapter_names=list(strengths))
    sample = images_first(networks.given("lora", "sample", 1, 8, 8, 4)).float()
    context = networks.given("lora", "context", 1, 5, PRESET["unet"]["cross_attention_dim"]).float()
    prediction = pipe["unet"](sample, torch.tensor([499.0]), context).sample
    results[f"{name}/prediction"] = images_last(prediction).contiguous()
    tokens = torch.tensor([[512, 7, 300, 511, 513, 0]])
    results[f"{name}/hidden"] = pipe["text_encoder"](tokens).last_hidden_state.contiguous()


def main():
    out = fixtures.folder(__doc__, "crates/models/tests/fixtures/lora")
    fixtures.reproducible()
    made = loras(model())
    results = {}
    with torch.no_grad():
        for name, strengths in CASES.items():
            run(name, strengths, made, results)
    for kind in ("prediction", "hidden"):
        for name in list(CASES)[1:]:
            change = (results[f"{name}/{kind}"] - results[f"plain/{kind}"]).abs().max()
            print(f"{name} changes {kind} by {change:.2f}")
            assert change > 0.05
    for name, state in {"peft": peft_file(made["peft"]), "kohya": kohya_file(made["kohya"])}.items():
        save_file({key: value.contiguous() for key, value in state.items()}, out / f"{name}.safetensors")
    save_file(results, out / "lora.safetensors")
    cases = [{"name": name, "strengths": strengths} for name, strengths in CASES.items()]
    fixtures.write_cases(out / "lora.json", cases)
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()
