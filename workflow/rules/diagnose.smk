# Needs: trained models and the parts of their splits. Makes, per run: ranks.parquet and
# evaluation.json (accuracy, last-item ranks), interventions.parquet, mixing*.parquet and
# maps.parquet (norm decomposition), rescale*.parquet (residual scaling, recovery). The
# sweeps (permutations, residual scales) are loops inside one job per trained model.


rule evaluate:
    input:
        script=script("evaluate.py"),
        modules=modules("evaluate.py"),
        model_code=model_code("evaluate.py"),
        weights=f"{RUN}/model.safetensors",
        description=f"{RUN}/model.json",
        train=f"{SPLIT}/train.parquet",
        test=f"{SPLIT}/test.parquet",
        user_map=f"{CORE}/users.parquet",
        item_map=f"{CORE}/items.parquet",
    output:
        ranks=f"{RUN}/ranks.parquet",
        recommendations=f"{RUN}/recommendations.parquet",
        summary=f"{RUN}/evaluation.json",
    log:
        f"logs/evaluate/{RUN_NAME}.log",
    benchmark:
        f"logs/evaluate/{RUN_NAME}.tsv"
    conda:
        ENVIRONMENT
    threads: config["threads"]
    resources:
        mem_mb=attempts(4000),
        runtime=60,
        gpu=gpu,
    params:
        device=config["device"],
        filter_seen=filter_seen,
        cutoffs=config["cutoffs"],
        recommendation_length=config["recommendation_length"],
    shell:
        diagnosis(
            "--train {input.train:q} --users {input.user_map:q} --items {input.item_map:q}"
            " --filter-seen {params.filter_seen} --cutoffs {params.cutoffs}"
            " --recommendation-length {params.recommendation_length} --ranks {output.ranks:q}"
            " --recommendations {output.recommendations:q} --summary {output.summary:q}"
        )


rule intervene:
    input:
        script=script("intervene.py"),
        modules=modules("intervene.py"),
        model_code=model_code("intervene.py"),
        weights=f"{RUN}/model.safetensors",
        description=f"{RUN}/model.json",
        test=f"{SPLIT}/test.parquet",
        user_map=f"{CORE}/users.parquet",
        item_map=f"{CORE}/items.parquet",
    output:
        f"{RUN}/interventions.parquet",
    log:
        f"logs/intervene/{RUN_NAME}.log",
    benchmark:
        f"logs/intervene/{RUN_NAME}.tsv"
    conda:
        ENVIRONMENT
    threads: config["threads"]
    resources:
        mem_mb=attempts(4000),
        runtime=120,
        gpu=gpu,
    params:
        device=config["device"],
        filter_seen=filter_seen,
        interventions=config["interventions"],
        repeats=config["shuffle_repeats"],
        seed=config["shuffle_seed"],
        cutoff=config["headline_cutoff"],
    shell:
        diagnosis(
            "--users {input.user_map:q} --items {input.item_map:q} --filter-seen"
            " {params.filter_seen} --interventions {params.interventions} --repeats"
            " {params.repeats} --shuffle-seed {params.seed} --cutoff {params.cutoff}"
            " --out {output:q}"
        )


rule decompose:
    input:
        script=script("decompose.py"),
        modules=modules("decompose.py"),
        model_code=model_code("decompose.py"),
        weights=f"{RUN}/model.safetensors",
        description=f"{RUN}/model.json",
        test=f"{SPLIT}/test.parquet",
    output:
        mixing=f"{RUN}/mixing.parquet",
        mixing_users=f"{RUN}/mixing_users.parquet",
        maps=f"{RUN}/maps.parquet",
    log:
        f"logs/decompose/{RUN_NAME}.log",
    benchmark:
        f"logs/decompose/{RUN_NAME}.tsv"
    conda:
        ENVIRONMENT
    threads: config["threads"]
    resources:
        mem_mb=attempts(4000),
        runtime=60,
        gpu=gpu,
    params:
        device=config["device"],
        map_positions=config["map_positions"],
    shell:
        diagnosis(
            "--map-positions {params.map_positions} --mixing {output.mixing:q}"
            " --mixing-users {output.mixing_users:q} --maps {output.maps:q}"
        )


rule rescale:
    input:
        script=script("rescale.py"),
        modules=modules("rescale.py"),
        model_code=model_code("rescale.py"),
        weights=f"{RUN}/model.safetensors",
        description=f"{RUN}/model.json",
        validation=f"{SPLIT}/validation.parquet",
        test=f"{SPLIT}/test.parquet",
    output:
        ranks=f"{RUN}/rescale.parquet",
        mixing=f"{RUN}/rescale_mixing.parquet",
    log:
        f"logs/rescale/{RUN_NAME}.log",
    benchmark:
        f"logs/rescale/{RUN_NAME}.tsv"
    conda:
        ENVIRONMENT
    threads: config["threads"]
    resources:
        mem_mb=attempts(4000),
        runtime=120,
        gpu=gpu,
    params:
        device=config["device"],
        filter_seen=filter_seen,
        scales=config["residual_scales"],
        repeats=config["rescale_shuffle_repeats"],
        seed=config["shuffle_seed"],
    shell:
        diagnosis(
            "--validation {input.validation:q} --filter-seen {params.filter_seen} --scales"
            " {params.scales} --repeats {params.repeats} --shuffle-seed {params.seed}"
            " --ranks {output.ranks:q} --mixing {output.mixing:q}"
        )
