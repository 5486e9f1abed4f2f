# What markdownlint holds in *.md: tools/dev/check_prose.
rule 'MD001' # headings go down one level at a time
rule 'MD009' # no blanks at the end of a line
rule 'MD013', :line_length => 100, :tables => false, :ignore_code_blocks => true
rule 'MD022' # blank lines around headings
rule 'MD024' # no two headings of a page are the same
rule 'MD025' # one title
rule 'MD031' # blank lines around code
