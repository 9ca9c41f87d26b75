# Needs: the result files of every run of the study. Makes: results/summaries/*.parquet
# (means and intervals over users and seeds), of these the tables (csv, md, tex, json)
# and figures (pdf, png, svg, and the csv behind it), and results/index.html. What is made of
# what stands in src/lastitem/study/products.py.


rule summarize:
    input:
        script=script("summarize.py"),
        modules=modules("summarize.py"),
        files=files_of_summary,
    output:
        "results/summaries/{summary}.parquet",
    log:
        "logs/summarize/{summary}.log",
    benchmark:
        "logs/summarize/{summary}.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    params:
        told=lambda wildcards: told(SUMMARIES[wildcards.summary]),
    shell:
        "python {input.script:q} {wildcards.summary} --inputs {input.files:q} {params.told}"
        " --out {output:q} > {log:q} 2>&1"


for kind, products, endings in (
    ("table", TABLES, ["csv", "md", "tex", "json"]),
    ("figure", FIGURES, ["pdf", "png", "svg", "csv"]),
):
    for name, product in products.items():

        rule:
            name:
                name
            input:
                script=script(f"make_{kind}.py"),
                modules=modules(f"make_{kind}.py"),
                summaries=expand("results/summaries/{summary}.parquet", summary=product.reads),
                published=[f"{PUBLISHED}/{product.published}"] * bool(product.published),
            output:
                report(
                    f"results/{name}.{endings[0]}",
                    caption=f"../report/{name}.rst",
                    category=f"{kind}s".capitalize(),
                    labels={kind: name, "shows": product.shows},
                ),
                expand(f"results/{name}.{{ending}}", ending=endings[1:]),
            log:
                f"logs/{name}.log",
            benchmark:
                f"logs/{name}.tsv"
            localrule: True
            conda:
                ENVIRONMENT
            params:
                function=product.function,
                told=told(product),
            shell:
                "python {input.script:q} {params.function} --summaries {input.summaries:q}"
                " --published {input.published:q} {params.told} --out {output:q} > {log:q} 2>&1"


rule page:
    input:
        script=script("make_page.py"),
        modules=modules("make_page.py"),
        template=f"{SCRIPTS}/lastitem/report/page.html.jinja",
        tables=expand("results/{name}.json", name=made(TABLES)),
        figures=expand("results/{name}.svg", name=made(FIGURES)),
        facts=expand("results/{name}.csv", name=made(TABLES) + made(FIGURES)),
        captions=expand(f"{CAPTIONS}/{{name}}.rst", name=made(FIGURES)),
        descriptions=runs("model.json", config["models"] + config["baselines"]),
    output:
        report(
            "results/index.html",
            caption="../report/page.rst",
            category="Page",
            labels={"page": "index", "shows": "The answer"},
        ),
    log:
        "logs/page.log",
    benchmark:
        "logs/page.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    params:
        titles=[FIGURES[name].shows for name in made(FIGURES)],
        folded=[name for name, shown in {**TABLES, **FIGURES}.items() if shown.folded],
        studies=json.dumps(studies({**TABLES, **FIGURES}, made(TABLES) + made(FIGURES))),
        settings=study_settings,
    shell:
        "python {input.script:q} --tables {input.tables:q} --figures {input.figures:q}"
        " --captions {input.captions:q} --titles {params.titles:q} --folded {params.folded}"
        " --descriptions {input.descriptions:q} --settings {params.settings:q} --studies"
        " {params.studies:q} --out {output:q} 2>&1 | tee {log:q}"
