# Needs: the parts of a split. Makes:
# results/{dataset}/{split}/{model}/seed={seed}/model.safetensors, model.json,
# learning_curve.csv; where a model has a grid, first the same for each of its points
# under grid/{point}/, and choice.json. learning_curve.pdf and .png of each run.


localrules:
    choose,
    learning_curve,


rule train:
    input:
        script=script("train.py"),
        modules=modules("train.py"),
        model_code=model_code("train.py"),
        train=f"{SPLIT}/train.parquet",
        validation=f"{SPLIT}/validation.parquet",
        item_map=f"{CORE}/items.parquet",
        choice=choice,
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
        architecture=architecture,
        settings=model_settings,
        training=training_settings,
        filter_seen=filter_seen,
        device=config["device"],
        # Not an output, which Snakemake would delete when the job is killed. The script
        # removes it at the end.
        state=f"{RUN}/unfinished.pt",
        choice=lambda wildcards, input: f"--choice {input.choice[0]}" if input.choice else "",
        study=study_of_training,
    shell:
        "OMP_NUM_THREADS={threads} python {input.script:q} --dataset {wildcards.dataset:q}"
        " --split {wildcards.split} --model {wildcards.model:q} --seed {wildcards.seed} --train"
        " {input.train:q} --validation {input.validation:q} --items {input.item_map:q} --study"
        " {params.study} --architecture {params.architecture:q} --settings {params.settings:q}"
        " --training {params.training:q} --filter-seen {params.filter_seen} --device"
        " {params.device} --threads {threads} --state {params.state:q} {params.choice} --weights"
        " {output.weights:q} --description {output.description:q} --curve {output.curve:q} 2>&1 |"
        " tee {log:q}"


use rule train as train_grid_point with:
    input:
        script=script("train.py"),
        modules=modules("train.py"),
        model_code=model_code("train.py"),
        train=f"{SPLIT}/train.parquet",
        validation=f"{SPLIT}/validation.parquet",
        item_map=f"{CORE}/items.parquet",
        choice=[],
    output:
        weights=f"{GRID}/model.safetensors",
        description=f"{GRID}/model.json",
        curve=f"{GRID}/learning_curve.csv",
    log:
        "logs/train/{dataset}.{split}.{model}.{point}.seed={seed}.log",
    benchmark:
        "logs/train/{dataset}.{split}.{model}.{point}.seed={seed}.tsv"
    params:
        architecture=architecture,
        settings=model_settings,
        training=training_settings,
        filter_seen=filter_seen,
        device=config["device"],
        state=f"{GRID}/unfinished.pt",
        choice="",
        study=study_of_training,


rule choose:
    input:
        script=script("choose.py"),
        modules=modules("choose.py"),
        curves=of_grid("learning_curve.csv"),
    output:
        f"{SPLIT}/{{model}}/choice.json",
    log:
        "logs/choose/{dataset}.{split}.{model}.log",
    benchmark:
        "logs/choose/{dataset}.{split}.{model}.tsv"
    conda:
        ENVIRONMENT
    params:
        points=lambda wildcards: json.dumps(grid_points(wildcards.model)),
        seed=config["seeds"][0],
    shell:
        "python {input.script:q} --points {params.points:q} --curves {input.curves:q} --seed"
        " {params.seed} --out {output:q} 2>&1 | tee {log:q}"


rule learning_curve:
    input:
        script=script("draw_learning_curve.py"),
        modules=modules("draw_learning_curve.py"),
        curve=f"{RUN}/learning_curve.csv",
    output:
        pdf=report(
            f"{RUN}/learning_curve.pdf",
            caption="../report/learning_curve.rst",
            category="Learning curves",
            labels={
                "dataset": "{dataset}",
                "split": "{split}",
                "model": "{model}",
                "seed": "{seed}",
            },
        ),
        png=f"{RUN}/learning_curve.png",
    log:
        f"logs/learning_curve/{RUN_NAME}.log",
    benchmark:
        f"logs/learning_curve/{RUN_NAME}.tsv"
    conda:
        ENVIRONMENT
    params:
        cutoff=config["headline_cutoff"],
    shell:
        "python {input.script:q} --dataset {wildcards.dataset:q} --split {wildcards.split}"
        " --model {wildcards.model:q} --seed {wildcards.seed} --curve {input.curve:q}"
        " --cutoff {params.cutoff} --pdf {output.pdf:q} --png {output.png:q} > {log:q} 2>&1"
