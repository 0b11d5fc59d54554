#!/usr/bin/env bash
# Every way torch can be asked to run on a GPU, briefly: gpu_smoke.sh STORE
set -u
store=$1
run() { timeout 200 python3 -m deepstone run "$@" --store "$store" --budget 1 --target 5 2>&1 | head -12; echo "exit ${PIPESTATUS[0]}"; }
run cifarnet batch=8
for precision in fp32 tf32 tf32-conv bf16-mixed bf16 fp16-mixed; do run resnet110 batch=64 precision=$precision; done
run resnet110 batch=64 layout=nhwc algorithm=benchmark
run resnet110 batch=64 engine=native
run resnet110 batch=64 algorithm=deterministic
run resnet110 batch=64 checkpointing=on
run alexnet batch=64 input=pinned dropout=on
run alexnet batch=64 input=host optimizer=adam
run resnet110 batch=64 optimizer=momentum-fused phase=gradient,train
run cifarnet batch=64 compile=reduce-overhead
run vgg16 batch=100000
run alexnet engine=onednn
run alexnet device=gpu:7
