# Needs: the parts of a split.
# Makes: results/{dataset}/{split}/{model}/seed={seed}/model.safetensors, model.json, learning_curve.csv.


rule train:
    input:
        script=script("train.py"),
        modules=modules("train.py"),
        train=f"{SPLIT}/train.parquet",
        validation=f"{SPLIT}/validation.parquet",
        item_map=f"{CORE}/items.parquet",
    output:
        weights=f"{RUN}/model.safetensors",
        description=f"{RUN}/model.json",
        curve=f"{RUN}/learning_curve.csv",
    log:
        f"logs/train/{RUN_NAME}.log",
    benchmark:
        f"logs/train/{RUN_NAME}.tsv"
    conda:
        ENVIRONMENT
    threads: config["threads"]
    resources:
        mem_mb=attempts(4000),
        runtime=720,
        gpu=gpu,
    params:
        architecture=lambda wildcards: config["model_settings"][wildcards.model]["architecture"],
        settings=model_settings,
        training=training_settings,
        filter_seen=filter_seen,
        device=config["device"],
        # Not an output, which Snakemake would delete when the job is killed. The script removes it at the end.
        state=f"{RUN}/unfinished.safetensors",
    shell:
        "OMP_NUM_THREADS={threads} python {input.script:q} --dataset {wildcards.dataset:q} --split {wildcards.split}"
        " --model {wildcards.model:q} --seed {wildcards.seed} --train {input.train:q} --validation {input.validation:q}"
        " --items {input.item_map:q} --architecture {params.architecture} --settings {params.settings:q}"
        " --training {params.training:q} --filter-seen {params.filter_seen} --device {params.device} --threads {threads}"
        " --state {params.state:q} --weights {output.weights:q} --description {output.description:q} --curve {output.curve:q} 2>&1 | tee {log:q}"
