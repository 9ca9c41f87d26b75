# Needs: the result files of every run of the study.
# Makes: results/index.html, results/table1 … table5, comparisons and claims (csv, md, tex) and results/fig1 … fig7 (pdf, png, and the csv behind it).


localrules:
    table1,
    table2,
    table3,
    table4,
    table5,
    comparisons,
    claims,
    fig1,
    fig2,
    fig3,
    fig4,
    fig5,
    fig6,
    fig7,
    page,


rule table1:
    input:
        script=script("make_table.py"),
        modules=modules("make_table.py"),
        statistics=expand(f"{CORE}/statistics.json", dataset=config["datasets"]),
        published=f"{PUBLISHED}/dataset_statistics.csv",
    output:
        csv=report(
            "results/table1.csv",
            caption="../report/table1.rst",
            category="Tables",
            labels={"table": "table1", "shows": "Dataset statistics"},
        ),
        markdown="results/table1.md",
        latex="results/table1.tex",
    log:
        "logs/table1.log",
    benchmark:
        "logs/table1.tsv"
    conda:
        ENVIRONMENT
    shell:
        "python {input.script:q} table1 --statistics {input.statistics:q} --published {input.published:q}"
        " --csv {output.csv:q} --markdown {output.markdown:q} --latex {output.latex:q} > {log:q} 2>&1"


rule table2:
    input:
        script=script("make_table.py"),
        modules=modules("make_table.py"),
        ranks=runs("ranks.parquet", config["models"] + config["baselines"]),
        evaluations=runs("evaluation.json", config["models"] + config["baselines"]),
        charts=f"{PUBLISHED}/charts.csv",
    output:
        csv=report(
            "results/table2.csv",
            caption="../report/table2.rst",
            category="Tables",
            labels={"table": "table2", "shows": "Accuracy"},
        ),
        markdown="results/table2.md",
        latex="results/table2.tex",
    log:
        "logs/table2.log",
    benchmark:
        "logs/table2.tsv"
    conda:
        ENVIRONMENT
    params:
        cutoffs=config["cutoffs"],
        cutoff=config["headline_cutoff"],
        bootstrap=config["bootstrap"],
    shell:
        "python {input.script:q} table2 --ranks {input.ranks:q} --evaluations {input.evaluations:q}"
        " --charts {input.charts:q} --cutoffs {params.cutoffs} --headline-cutoff {params.cutoff}"
        " --resamples {params.bootstrap[resamples]} --bootstrap-seed {params.bootstrap[seed]}"
        " --csv {output.csv:q} --markdown {output.markdown:q} --latex {output.latex:q} > {log:q} 2>&1"


rule table3:
    input:
        script=script("make_table.py"),
        modules=modules("make_table.py"),
        mixing=runs("mixing.parquet"),
        mixing_users=runs("mixing_users.parquet"),
    output:
        csv=report(
            "results/table3.csv",
            caption="../report/table3.rst",
            category="Tables",
            labels={"table": "table3", "shows": "Mixing ratios"},
        ),
        markdown="results/table3.md",
        latex="results/table3.tex",
    log:
        "logs/table3.log",
    benchmark:
        "logs/table3.tsv"
    conda:
        ENVIRONMENT
    params:
        bootstrap=config["bootstrap"],
    shell:
        "python {input.script:q} table3 --mixing {input.mixing:q} --mixing-users {input.mixing_users:q}"
        " --resamples {params.bootstrap[resamples]} --bootstrap-seed {params.bootstrap[seed]}"
        " --csv {output.csv:q} --markdown {output.markdown:q} --latex {output.latex:q} > {log:q} 2>&1"


rule table4:
    input:
        script=script("make_table.py"),
        modules=modules("make_table.py"),
        rescale=runs("rescale.parquet"),
    output:
        csv=report(
            "results/table4.csv",
            caption="../report/table4.rst",
            category="Tables",
            labels={"table": "table4", "shows": "Recovery and chosen λ"},
        ),
        markdown="results/table4.md",
        latex="results/table4.tex",
    log:
        "logs/table4.log",
    benchmark:
        "logs/table4.tsv"
    conda:
        ENVIRONMENT
    params:
        tolerances=config["accuracy_tolerances"],
        tolerance=config["headline_tolerance"],
        cutoff=config["headline_cutoff"],
        bootstrap=config["bootstrap"],
    shell:
        "python {input.script:q} table4 --rescale {input.rescale:q} --tolerances {params.tolerances}"
        " --headline-tolerance {params.tolerance} --headline-cutoff {params.cutoff}"
        " --resamples {params.bootstrap[resamples]} --bootstrap-seed {params.bootstrap[seed]}"
        " --csv {output.csv:q} --markdown {output.markdown:q} --latex {output.latex:q} > {log:q} 2>&1"


rule table5:
    input:
        script=script("make_table.py"),
        modules=modules("make_table.py"),
        ranks=tie_runs("ranks.parquet"),
        shuffle=tie_runs("shuffle.parquet"),
        users=expand(f"{CORE}/users.parquet", dataset=TIE_DATASETS),
    output:
        csv=report(
            "results/table5.csv",
            caption="../report/table5.rst",
            category="Tables",
            labels={"table": "table5", "shows": "Tie order"},
        ),
        markdown="results/table5.md",
        latex="results/table5.tex",
    log:
        "logs/table5.log",
    benchmark:
        "logs/table5.tsv"
    conda:
        ENVIRONMENT
    params:
        cutoff=config["headline_cutoff"],
        bootstrap=config["bootstrap"],
        permutations=config["permutations"],
        datasets=TIE_DATASETS,
    shell:
        "python {input.script:q} table5 --ranks {input.ranks:q} --shuffle {input.shuffle:q} --users {input.users:q}"
        " --datasets {params.datasets:q} --permutations {params.permutations} --headline-cutoff {params.cutoff}"
        " --resamples {params.bootstrap[resamples]} --bootstrap-seed {params.bootstrap[seed]}"
        " --csv {output.csv:q} --markdown {output.markdown:q} --latex {output.latex:q} > {log:q} 2>&1"


rule comparisons:
    input:
        script=script("make_table.py"),
        modules=modules("make_table.py"),
        ranks=runs("ranks.parquet"),
        shuffle=runs("shuffle.parquet"),
        rescale=runs("rescale.parquet"),
    output:
        csv=report(
            "results/comparisons.csv",
            caption="../report/comparisons.rst",
            category="Tables",
            labels={"table": "comparisons", "shows": "Paired differences"},
        ),
        markdown="results/comparisons.md",
        latex="results/comparisons.tex",
    log:
        "logs/comparisons.log",
    benchmark:
        "logs/comparisons.tsv"
    conda:
        ENVIRONMENT
    params:
        cutoff=config["headline_cutoff"],
        bootstrap=config["bootstrap"],
        permutations=config["permutations"],
    shell:
        "python {input.script:q} comparisons --ranks {input.ranks:q} --shuffle {input.shuffle:q} --rescale {input.rescale:q}"
        " --headline-cutoff {params.cutoff} --permutations {params.permutations}"
        " --resamples {params.bootstrap[resamples]} --bootstrap-seed {params.bootstrap[seed]}"
        " --csv {output.csv:q} --markdown {output.markdown:q} --latex {output.latex:q} > {log:q} 2>&1"


rule claims:
    input:
        script=script("make_table.py"),
        modules=modules("make_table.py"),
        ranks=runs("ranks.parquet"),
        shuffle=runs("shuffle.parquet"),
        mixing_users=runs("mixing_users.parquet"),
        rescale=runs("rescale.parquet"),
        rescale_mixing=runs("rescale_mixing.parquet"),
        charts=f"{PUBLISHED}/charts.csv",
    output:
        csv=report(
            "results/claims.csv",
            caption="../report/claims.rst",
            category="Tables",
            labels={"table": "claims", "shows": "The paper's claims"},
        ),
        markdown="results/claims.md",
        latex="results/claims.tex",
    log:
        "logs/claims.log",
    benchmark:
        "logs/claims.tsv"
    conda:
        ENVIRONMENT
    params:
        cutoff=config["headline_cutoff"],
        bootstrap=config["bootstrap"],
    shell:
        "python {input.script:q} claims --ranks {input.ranks:q} --shuffle {input.shuffle:q} --mixing-users {input.mixing_users:q}"
        " --charts {input.charts:q} --rescale {input.rescale:q} --rescale-mixing {input.rescale_mixing:q}"
        " --headline-cutoff {params.cutoff} --resamples {params.bootstrap[resamples]} --bootstrap-seed {params.bootstrap[seed]}"
        " --csv {output.csv:q} --markdown {output.markdown:q} --latex {output.latex:q} > {log:q} 2>&1"


rule fig1:
    input:
        script=script("plot_fig1.py"),
        modules=modules("plot_fig1.py"),
        shuffle=runs("shuffle.parquet"),
    output:
        pdf=report(
            "results/fig1.pdf",
            caption="../report/fig1.rst",
            category="Figures",
            labels={"figure": "fig1", "shows": SHOWN["fig1"]},
        ),
        png="results/fig1.png",
        csv="results/fig1.csv",
    log:
        "logs/fig1.log",
    benchmark:
        "logs/fig1.tsv"
    conda:
        ENVIRONMENT
    params:
        cutoff=config["headline_cutoff"],
        bootstrap=config["bootstrap"],
    shell:
        "python {input.script:q} --shuffle {input.shuffle:q}"
        " --cutoff {params.cutoff} --resamples {params.bootstrap[resamples]} --bootstrap-seed {params.bootstrap[seed]}"
        " --pdf {output.pdf:q} --png {output.png:q} --csv {output.csv:q} > {log:q} 2>&1"


rule fig2:
    input:
        script=script("plot_fig2.py"),
        modules=modules("plot_fig2.py"),
        ranks=runs("ranks.parquet"),
    output:
        pdf=report(
            "results/fig2.pdf",
            caption="../report/fig2.rst",
            category="Figures",
            labels={"figure": "fig2", "shows": SHOWN["fig2"]},
        ),
        png="results/fig2.png",
        csv="results/fig2.csv",
    log:
        "logs/fig2.log",
    benchmark:
        "logs/fig2.tsv"
    conda:
        ENVIRONMENT
    params:
        cutoff=config["headline_cutoff"],
        bootstrap=config["bootstrap"],
    shell:
        "python {input.script:q} --ranks {input.ranks:q}"
        " --cutoff {params.cutoff} --resamples {params.bootstrap[resamples]} --bootstrap-seed {params.bootstrap[seed]}"
        " --pdf {output.pdf:q} --png {output.png:q} --csv {output.csv:q} > {log:q} 2>&1"


rule fig3:
    input:
        script=script("plot_fig3.py"),
        modules=modules("plot_fig3.py"),
        maps=runs("maps.parquet"),
    output:
        pdf=report(
            "results/fig3.pdf",
            caption="../report/fig3.rst",
            category="Figures",
            labels={"figure": "fig3", "shows": SHOWN["fig3"]},
        ),
        png="results/fig3.png",
        csv="results/fig3.csv",
    log:
        "logs/fig3.log",
    benchmark:
        "logs/fig3.tsv"
    conda:
        ENVIRONMENT
    shell:
        "python {input.script:q} --maps {input.maps:q}"
        " --pdf {output.pdf:q} --png {output.png:q} --csv {output.csv:q} > {log:q} 2>&1"


rule fig4:
    input:
        script=script("plot_fig4.py"),
        modules=modules("plot_fig4.py"),
        rescale=runs("rescale.parquet"),
        mixing=runs("rescale_mixing.parquet"),
    output:
        pdf=report(
            "results/fig4.pdf",
            caption="../report/fig4.rst",
            category="Figures",
            labels={"figure": "fig4", "shows": SHOWN["fig4"]},
        ),
        png="results/fig4.png",
        csv="results/fig4.csv",
    log:
        "logs/fig4.log",
    benchmark:
        "logs/fig4.tsv"
    conda:
        ENVIRONMENT
    params:
        cutoff=config["headline_cutoff"],
        bootstrap=config["bootstrap"],
    shell:
        "python {input.script:q} --rescale {input.rescale:q} --mixing {input.mixing:q}"
        " --cutoff {params.cutoff} --resamples {params.bootstrap[resamples]} --bootstrap-seed {params.bootstrap[seed]}"
        " --pdf {output.pdf:q} --png {output.png:q} --csv {output.csv:q} > {log:q} 2>&1"


rule fig5:
    input:
        script=script("plot_fig5.py"),
        modules=modules("plot_fig5.py"),
        rescale=runs("rescale.parquet"),
    output:
        pdf=report(
            "results/fig5.pdf",
            caption="../report/fig5.rst",
            category="Figures",
            labels={"figure": "fig5", "shows": SHOWN["fig5"]},
        ),
        png="results/fig5.png",
        csv="results/fig5.csv",
    log:
        "logs/fig5.log",
    benchmark:
        "logs/fig5.tsv"
    conda:
        ENVIRONMENT
    params:
        cutoff=config["headline_cutoff"],
        bootstrap=config["bootstrap"],
    shell:
        "python {input.script:q} --rescale {input.rescale:q}"
        " --cutoff {params.cutoff} --resamples {params.bootstrap[resamples]} --bootstrap-seed {params.bootstrap[seed]}"
        " --pdf {output.pdf:q} --png {output.png:q} --csv {output.csv:q} > {log:q} 2>&1"


rule fig6:
    input:
        script=script("plot_fig6.py"),
        modules=modules("plot_fig6.py"),
        rescale=runs("rescale.parquet"),
    output:
        pdf=report(
            "results/fig6.pdf",
            caption="../report/fig6.rst",
            category="Figures",
            labels={"figure": "fig6", "shows": SHOWN["fig6"]},
        ),
        png="results/fig6.png",
        csv="results/fig6.csv",
    log:
        "logs/fig6.log",
    benchmark:
        "logs/fig6.tsv"
    conda:
        ENVIRONMENT
    params:
        cutoff=config["headline_cutoff"],
        tolerances=config["accuracy_tolerances"],
        tolerance=config["headline_tolerance"],
        bootstrap=config["bootstrap"],
    shell:
        "python {input.script:q} --rescale {input.rescale:q}"
        " --cutoff {params.cutoff}"
        " --tolerances {params.tolerances} --headline-tolerance {params.tolerance}"
        " --resamples {params.bootstrap[resamples]} --bootstrap-seed {params.bootstrap[seed]}"
        " --pdf {output.pdf:q} --png {output.png:q} --csv {output.csv:q} > {log:q} 2>&1"


rule fig7:
    input:
        script=script("plot_fig7.py"),
        modules=modules("plot_fig7.py"),
        ranks=tie_runs("ranks.parquet"),
        shuffle=tie_runs("shuffle.parquet"),
        users=expand(f"{CORE}/users.parquet", dataset=TIE_DATASETS),
    output:
        pdf=report(
            "results/fig7.pdf",
            caption="../report/fig7.rst",
            category="Figures",
            labels={"figure": "fig7", "shows": SHOWN["fig7"]},
        ),
        png="results/fig7.png",
        csv="results/fig7.csv",
    log:
        "logs/fig7.log",
    benchmark:
        "logs/fig7.tsv"
    conda:
        ENVIRONMENT
    params:
        cutoff=config["headline_cutoff"],
        bootstrap=config["bootstrap"],
        permutations=config["permutations"],
        datasets=TIE_DATASETS,
    shell:
        "python {input.script:q} --ranks {input.ranks:q} --shuffle {input.shuffle:q} --users {input.users:q}"
        " --datasets {params.datasets:q} --permutations {params.permutations} --cutoff {params.cutoff} --resamples {params.bootstrap[resamples]} --bootstrap-seed {params.bootstrap[seed]}"
        " --pdf {output.pdf:q} --png {output.png:q} --csv {output.csv:q} > {log:q} 2>&1"


rule page:
    input:
        script=script("make_page.py"),
        modules=modules("make_page.py"),
        template=f"{SCRIPTS}/lastitem/report/page.html.jinja",
        tables=expand("results/{table}.md", table=TABLES),
        facts=expand("results/{name}.csv", name=[*TABLES, *FIGURES]),
        figures=expand("results/{figure}.png", figure=FIGURES),
        captions=expand(f"{CAPTIONS}/{{figure}}.rst", figure=FIGURES),
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
    conda:
        ENVIRONMENT
    params:
        titles=json.dumps(SHOWN),
        captions=lambda wildcards, input: os.path.dirname(input.captions[0]),
        settings=study_settings,
    shell:
        "python {input.script:q} --tables {input.tables:q} --figures {input.figures:q} --titles {params.titles:q}"
        " --captions {params.captions:q} --descriptions {input.descriptions:q} --settings {params.settings:q} --out {output:q} > {log:q} 2>&1"
