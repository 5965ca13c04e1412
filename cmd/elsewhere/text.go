package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/elsewhere-sh/elsewhere/config"
)

// table is rows of text in columns.
type table struct {
	w *tabwriter.Writer
}

func newTable(out io.Writer, head ...string) *table {
	t := &table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	if len(head) > 0 {
		t.row(head...)
	}
	return t
}

// row adds a line; an empty cell is shown as a minus, so that columns can be counted.
func (t *table) row(cells ...string) {
	for i, cell := range cells {
		if cells[i] = oneLine(cell); cells[i] == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

// line adds text outside of the columns, which begin anew behind it.
func (t *table) line(text string) {
	_ = t.w.Flush()
	fmt.Fprintln(t.w, text)
	_ = t.w.Flush()
}

func (t *table) print() error { return t.w.Flush() }

// noted prints warnings on standard error, behind the output that they are about.
func (a *app) noted(err error, warnings []string) error {
	for _, text := range warnings {
		notice(a.err, text)
	}
	return a.written(err)
}

// explain prints all about one setting.
func explain(w io.Writer, v config.Value) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s = %s\n", v.Key, oneLine(v.Value))
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-9s %s\n", name, oneLine(text))
		}
	}
	line("from", v.Origin)
	line("problem", v.Problem)
	for _, hidden := range v.Hidden {
		line("hides", fmt.Sprintf("%s in %s", hidden.Value, hidden.Origin))
	}
	if !v.Used {
		line("note", "the chosen backend does not read it")
	}
	line("what", v.Doc)
	line("type", v.Type)
	line("variable", v.Env)
	line("status", v.Status)
	_, err := io.WriteString(w, b.String())
	return err
}
