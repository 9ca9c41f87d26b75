# From a raw interaction log to tables and figures. The stages, in order: data, train,
# diagnose, report. What is studied stands in config.yaml, where logs come from in
# config/datasets.yaml.
from snakemake.utils import min_version

min_version("9.0")


configfile: f"{workflow.basedir}/config/datasets.yaml"
configfile: f"{workflow.basedir}/config.yaml"


report: "workflow/report/study.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/diagnose.smk"
include: "workflow/rules/report.smk"


onstart:
    for fault in unused_settings(config):
        print(f"warning: {fault}", file=sys.stderr)


onerror:
    print(after_failure(log), file=sys.stderr)


rule all:
    default_target: True
    input:
        expand("results/{table}.{ending}", table=made(TABLES), ending=["csv", "md", "tex"]),
        expand("results/{figure}.{ending}", figure=made(FIGURES), ending=["pdf", "png", "csv"]),
        runs("learning_curve.pdf"),
        runs("recommendations.parquet", config["models"] + config["baselines"]),
        runs("model.safetensors", config["models"] + config["baselines"]),
        "results/index.html",
