"""From the results of single runs to summaries, tables, figures and the page."""
