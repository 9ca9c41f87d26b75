# Needs: config/datasets.yaml (or own stanzas below `registry:`).
# Makes: data/{dataset}/raw, results/{dataset}/core/ (filtered and encoded log),
#        results/{dataset}/{split}/*.parquet.


localrules:
    download,


rule download:
    input:
        # Ancient: Snakemake deletes outputs before a rerun, and an edit of this code is no reason
        # to fetch again.
        script=ancient(script("download.py")),
        modules=ancient(modules("download.py")),
    output:
        log="data/{dataset}/raw",
        provenance="data/{dataset}/raw.json",
    log:
        "logs/download/{dataset}.log",
    benchmark:
        "logs/download/{dataset}.tsv"
    conda:
        ENVIRONMENT
    resources:
        # Resources, because a change of one is no reason to fetch again: another wording of the
        # licence, or that the log is there already (then Snakemake deletes it, and the hard link
        # that keeps it is taken).
        licence=lambda wildcards: stanza(wildcards).get("licence", ""),
        kept=is_there("data/{dataset}/raw"),
    params:
        sources=of_sources(
            "url", "share", "package", "by_hand", "path", "generated", "bytes", "sha256"
        ),
        fingerprints=origin,
    shell:
        "python {input.script:q} --dataset {wildcards.dataset:q} --sources {params.sources:q}"
        " --licence={resources.licence:q} --fingerprints {params.fingerprints:q}"
        " --kept {resources.kept}"
        " --out {output.log:q} --provenance {output.provenance:q} 2>&1 | tee {log:q}"


rule core_filter:
    input:
        script=script("core_filter.py"),
        modules=modules("core_filter.py"),
        log=raw("raw"),
        provenance=raw("raw.json"),
    output:
        interactions=f"{CORE}/interactions.parquet",
        user_map=f"{CORE}/users.parquet",
        item_map=f"{CORE}/items.parquet",
        statistics=f"{CORE}/statistics.json",
    log:
        "logs/core_filter/{dataset}.log",
    benchmark:
        "logs/core_filter/{dataset}.tsv"
    conda:
        ENVIRONMENT
    # Two threads number ids while the file is read.
    threads: 2
    resources:
        mem_mb=attempts(4000),
        runtime=60,
    params:
        sources=of_sources("form"),
        minimum_events=config["p_core"],
        ties=ties_options,
    shell:
        "python {input.script:q} --dataset {wildcards.dataset:q} --log {input.log:q}"
        " --provenance {input.provenance:q} --sources {params.sources:q}"
        " --minimum-events {params.minimum_events} {params.ties}"
        " --interactions {output.interactions:q} --users {output.user_map:q}"
        " --items {output.item_map:q} --statistics {output.statistics:q} 2>&1 | tee {log:q}"


rule split:
    input:
        script=script("split.py"),
        modules=modules("split.py"),
        interactions=rules.core_filter.output.interactions,
    output:
        train=f"{SPLIT}/train.parquet",
        validation=f"{SPLIT}/validation.parquet",
        test=f"{SPLIT}/test.parquet",
        counts=f"{SPLIT}/split.json",
    log:
        "logs/split/{dataset}.{split}.log",
    benchmark:
        "logs/split/{dataset}.{split}.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=attempts(4000),
        runtime=30,
    params:
        options=split_options,
    shell:
        "python {input.script:q} --interactions {input.interactions:q} {params.options}"
        " --train {output.train:q} --validation {output.validation:q} --test {output.test:q}"
        " --counts {output.counts:q} 2>&1 | tee {log:q}"
