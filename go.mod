module github.com/elsewhere-sh/elsewhere

go 1.26
