"""The flags of llama-server and its sisters: their names, which take a value, which change speed."""

from __future__ import annotations

import difflib
import re

ALIASES = {
    "--model": "-m", "--threads": "-t", "--threads-batch": "-tb", "--ctx-size": "-c", "--batch-size": "-b",
    "--ubatch-size": "-ub", "--parallel": "-np", "--flash-attn": "-fa", "--cache-type-k": "-ctk",
    "--cache-type-v": "-ctv", "-lm": "--load-mode", "-nr": "--no-repack", "-hfr": "-hf", "--hf-repo": "-hf",
    "--hf-file": "-hff", "--kv-unified": "-kvu", "--no-kv-unified": "-no-kvu",
}  # fmt: skip
"""Other names of the flags that a configuration is made of."""

READ = frozenset({*ALIASES.values(), "--repack", "--mmap", "--no-mmap", "--mlock", "--swa-full"})
"""What a configuration is made of, in the name that is used here."""

SECRET = frozenset({"--api-key", "-hft", "--hf-token"})
"""Their values are kept nowhere."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Of the releases up to November 2026, and of earlier ones as far as old commands still hold them.
_SWITCHES = _names(
    """
    --agent --backend-sampling --cache-idle-slots --cache-list --cache-prompt --chatml --check-tensors
    --completion-bash --cont-batching --context-shift --conversation --cors-credentials --cpu-moe
    --cpu-moe-draft --display-prompt --dump-kv-cache --embd-bge-small-en-default --embd-e5-small-en-default
    --embd-gemma-default --embd-gte-small-default --embedding --embeddings --escape --fim-qwen-1.5b-default
    --fim-qwen-14b-spec --fim-qwen-30b-default --fim-qwen-3b-default --fim-qwen-7b-default
    --fim-qwen-7b-spec --gpt-oss-120b-default --gpt-oss-20b-default --help --ignore-eos --in-prefix-bos
    --interactive --interactive-first --jinja --kv-offload --list-devices --log-disable
    --log-enable --log-jsonl --log-prefix --log-timestamps --log-verbose --lora-init-without-apply --metrics
    --mmproj-auto --mmproj-offload --models-autoload --multiline-input --no-agent --no-cache-idle-slots
    --no-cache-prompt --no-cont-batching --no-context-shift --no-conversation --no-cors-credentials
    --no-display-prompt --no-escape --no-host --no-jinja --no-kv-offload --no-log-jsonl
    --no-log-prefix --no-log-timestamps --no-mmproj --no-mmproj-auto --no-mmproj-offload --no-models-autoload
    --no-op-offload --no-perf --no-prefill-assistant --no-reasoning-preserve --no-show-timings
    --no-skip-chat-parsing --no-slots --no-spec-draft-backend-sampling --no-ui --no-ui-mcp-proxy --no-warmup
    --no-webui --no-webui-mcp-proxy --offline --op-offload --perf --prefill-assistant --prompt-cache-all
    --prompt-cache-ro --props --reasoning-preserve --rerank --reranking --reuse-port --show-timings
    --simple-io --single-turn --skip-chat-parsing --slots --spec-default --spec-draft-backend-sampling
    --spec-draft-cpu-moe --special --spm-infill --ui --ui-mcp-proxy --usage --verbose --verbose-prompt
    --version --vision-gemma-12b-default --vision-gemma-4b-default --warmup --webui --webui-mcp-proxy
    -ag -bs -cb -cl -cmoe -cmoed -cnv -dkvc -e -h -i -if -kvo -mli -nkvo -no-ag -no-cnv -nocb
    -sp -st -v
    """
)
_VALUED = _names(
    """
    --adaptive-decay --adaptive-target --alias --api-key --api-key-file --api-prefix --binary-file
    --cache-ram --cache-reuse --cache-type-k-draft --cache-type-v-draft --chat-template
    --chat-template-file --chat-template-kwargs --checkpoint-min-step --color --control-vector
    --control-vector-scaled --cors-headers --cors-methods --cors-origins --cpu-mask --cpu-mask-batch
    --cpu-mask-batch-draft --cpu-mask-draft --cpu-range --cpu-range-batch --cpu-range-batch-draft
    --cpu-range-draft --cpu-strict --cpu-strict-batch --cpu-strict-batch-draft --cpu-strict-draft
    --ctx-checkpoints --ctx-size-draft --defrag-thold --device --device-draft --docker-repo --draft
    --draft-max --draft-min --draft-n --draft-n-min --draft-p-min --draft-p-split --dry-allowed-length
    --dry-base --dry-multiplier --dry-penalty-last-n --dry-sequence-breaker --dynatemp-exp --dynatemp-range
    --embd-normalize --file --fit --fit-ctx --fit-target --frequency-penalty --gpu-layers
    --gpu-layers-draft --grammar --grammar-file --grp-attn-n --grp-attn-w --hf-repo-draft --hf-token --host
    --image-max-tokens --image-min-tokens --in-prefix --in-suffix --json-schema --json-schema-file --keep
    --kv-unified-per-slot --lazy-mode --log-colors --log-file --log-prompts-dir --log-verbosity --logit-bias
    --lookup-cache-dynamic --lookup-cache-static --lora --lora-scaled --main-gpu --mcp-servers-config
    --mcp-servers-json --media-path --min-p --mirostat --mirostat-ent --mirostat-lr --mmproj --mmproj-url
    --model-draft --model-url --models-dir --models-max --models-preset --mtmd-batch-max-tokens
    --n-cpu-ffn --n-cpu-moe --n-cpu-moe-draft --n-gpu-layers --n-gpu-layers-draft --n-predict --numa
    --override-kv --override-tensor --override-tensor-draft --path --poll --poll-batch --poll-batch-draft
    --poll-draft --pooling --port --predict --presence-penalty --print-token-count --prio --prio-batch
    --prio-batch-draft --prio-draft --prompt --prompt-cache --reasoning --reasoning-budget
    --reasoning-budget-message --reasoning-effort --reasoning-format --repeat-last-n --repeat-penalty
    --reverse-prompt --rope-freq-base --rope-freq-scale --rope-scale --rope-scaling --rpc --sampler-seq
    --samplers --sampling-seq --seed --sleep-idle-seconds --slot-prompt-similarity --slot-save-path
    --spec-draft-cpu-mask --spec-draft-cpu-mask-batch --spec-draft-cpu-range --spec-draft-cpu-range-batch
    --spec-draft-cpu-strict --spec-draft-cpu-strict-batch --spec-draft-device --spec-draft-hf
    --spec-draft-model --spec-draft-n-cpu-moe --spec-draft-n-max --spec-draft-n-min --spec-draft-ncmoe
    --spec-draft-ngl --spec-draft-override-tensor --spec-draft-p-min --spec-draft-p-split --spec-draft-poll
    --spec-draft-poll-batch --spec-draft-prio --spec-draft-prio-batch --spec-draft-threads
    --spec-draft-threads-batch --spec-draft-type-k --spec-draft-type-v --spec-ngram-map-k-min-hits
    --spec-ngram-map-k-size-m --spec-ngram-map-k-size-n --spec-ngram-map-k4v-min-hits
    --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-size-n --spec-ngram-min-hits --spec-ngram-mod-n-match
    --spec-ngram-mod-n-max --spec-ngram-mod-n-min --spec-ngram-simple-min-hits --spec-ngram-simple-size-m
    --spec-ngram-simple-size-n --spec-ngram-size-m --spec-ngram-size-n --spec-synth-len --spec-synth-rates
    --spec-type --split-mode --sse-ping-interval --ssl-cert-file --ssl-key-file --swa-checkpoints
    --system-prompt --system-prompt-file --tags --temp --temperature --tensor-split --threads-batch-draft
    --threads-draft --threads-http --timeout --tools --tools-runtime --top-k --top-n-sigma --top-nsigma
    --top-p --typical --typical-p --ui-config --ui-config-file --verbosity --video-ffmpeg-dir --video-fps
    --video-timestamp-interval --webui-config --webui-config-file --xtc-probability --xtc-threshold
    --yarn-attn-factor --yarn-beta-fast --yarn-beta-slow --yarn-ext-factor --yarn-orig-ctx
    -C -Cb -Cbd -Cd -Cr -Crb -Crbd -Crd -a -bf -cd -cms -co -cram -ctkd -ctvd -ctxcp -dev -devd -dr -dt -f
    -fit -fitc -fitt -gan -gaw -hfd -hfrd -hft -j -jf -l -lcd -lcs -lv -lzm -md -mg -mm -mmu -mu -n -ncffn
    -ncmoe -ncmoed -ngl -ngld -otd -ot -p -ptc -r -rea -s -sm -sps -sys -sysf -tbd -td -to -ts
    """
)
_PAIRED = frozenset({"--control-vector-layer-range"})

_CHANGES_SPEED = re.compile(
    r"-{1,2}(C|Cr|Cb|Crb|cpu-.*|prio.*|poll.*|numa|md|model-draft|td|tbd|threads-(batch-)?draft|spec-.*|draft.*"
    r"|cache-type-.-draft|ctkd|ctvd|lookup-.*|lc[sd]|lora.*|control-vector.*|kv-unified-per-slot"
    r"|ctxcp|ctx-checkpoints|swa-checkpoints|rope-.*|yarn-.*|grp-attn-.|ga[nw]|lzm|lazy-mode|ot|override-.*"
    r"|mm|mmu|mmproj.*|cmoe|cpu-moe|ncmoe|n-cpu-.*|ncffn|nocb|no-cont-batching|embeddings?|rerank(ing)?|rpc"
    r"|bs|backend-sampling|dr|docker-repo|mu|model-url|models-(dir|preset))"
)
_GPU = re.compile(
    r"-{1,2}(ngl|gpu-layers|n-gpu-layers|sm|split-mode|ts|tensor-split|mg|main-gpu|dev|device|nkvo|kvo"
    r"|(no-)?kv-offload|(no-)?op-offload)"
)


def normal(word: str) -> str:
    """A flag by the one name that is used here; long ones may be written with underscores."""
    name = word.replace("_", "-") if word.startswith("--") else word
    return ALIASES.get(name, name)


def values_of(flag: str) -> int | None:
    """How many values a flag takes that no configuration is made of; None where it is unknown."""
    if flag in _SWITCHES:
        return 0
    if flag in _VALUED:
        return 1
    return 2 if flag in _PAIRED else None


def changes_speed(flag: str) -> bool:
    """Whether a baseline without this flag may measure another speed."""
    return _CHANGES_SPEED.fullmatch(flag) is not None


def is_for_gpus(flag: str) -> bool:
    """Whether a flag says what a graphics card does."""
    return _GPU.fullmatch(flag) is not None


def nearest(flag: str) -> list[str]:
    """The known flag that an unknown one is a slip of; else up to three that look alike or share words with
    it, as --cache-type-k does with --kv-type."""
    every = sorted({*READ, *ALIASES, *_SWITCHES, *_VALUED, *_PAIRED})
    name = flag.partition("=")[0]
    slip = difflib.get_close_matches(name, every, n=1, cutoff=0.8)
    if slip:
        return slip
    shared = {known: len(_words(name) & _words(known)) for known in every}
    kin = sorted((known for known in every if shared[known]), key=lambda known: (-shared[known], len(known)))
    return list(dict.fromkeys((*difflib.get_close_matches(name, every, n=1), *kin)))[:3]


def _words(flag: str) -> set[str]:
    return {word for word in flag.strip("-").split("-") if len(word) > 1}
