//go:build unix

package main

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// The picture's measures, in its own units: those of a cell, and what is around the text.
const (
	cellWidth  = 8.4
	cellHeight = 20
	margin     = 18
	titleBar   = 34
)

// palette are the 16 colours, on a dark ground.
var palette = [16]string{
	"#45475a", "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#cba6f7", "#94e2d5", "#bac2de",
	"#585b70", "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#cba6f7", "#94e2d5", "#cdd6f4",
}

// The pace at which lines appear, in seconds.
const (
	beforeCommand = 1.2
	beforeOutput  = 0.7
	betweenLines  = 0.12
)

// draw makes the picture: lines appear one after the other and stay. Who asks for less motion, or has no animations, sees all at once.
func draw(shots []shot, columns int) []byte {
	s := newScreen(columns)
	var times []float64 // when each row appears
	now := 0.0
	appear := func(text string, first float64) {
		s.write(text)
		for delay := first; len(times) < len(s.rows)-1; delay = betweenLines {
			now += delay
			times = append(times, now)
		}
	}
	for _, shown := range shots {
		switch {
		case shown.command != "":
			appear("\x1b[32m$\x1b[0m \x1b[1m"+shown.command+"\x1b[0m\n", beforeCommand)
		default:
			appear("\x1b[2m"+shown.remark+"\x1b[0m\n", beforeOutput)
		}
		if out := shown.output; out != "" {
			appear(out, beforeOutput)
			if s.blank() {
				s.write("\r") // a line that was wiped
			} else {
				appear("\n", 0)
			}
		}
	}
	return picture(s, times)
}

func picture(s *screen, times []float64) []byte {
	var b strings.Builder
	height := titleBar + margin + cellHeight*len(times)
	width := margin*2 + int(cellWidth*float64(s.columns))
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="A terminal session with elsewhere">
<style>
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#cdd6f4;white-space:pre}
.b{font-weight:bold}.d{fill:#8f96b3}
g{animation:show .01s both}
@keyframes show{from{opacity:0}to{opacity:1}}
@media (prefers-reduced-motion:reduce){g{animation:none}}
</style>
<rect width="100%%" height="100%%" rx="8" fill="#1e1e2e"/>
<circle cx="20" cy="18" r="6" fill="#f38ba8"/><circle cx="40" cy="18" r="6" fill="#f9e2af"/><circle cx="60" cy="18" r="6" fill="#a6e3a1"/>
`, width, height, width, height)
	for i, at := range times {
		if len(s.rows[i]) == 0 {
			continue
		}
		fmt.Fprintf(&b, `<g style="animation-delay:%.2fs">`, at)
		row := s.rows[i]
		for from := 0; from < len(row); {
			to := from + 1
			for to < len(row) && row[to].style == row[from].style {
				to++
			}
			run(&b, i, from, row[from:to])
			from = to
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// run draws characters of one style. Their width is fixed, whatever font there is.
func run(b *strings.Builder, row, col int, cells []cell) {
	var text strings.Builder
	for _, c := range cells {
		text.WriteRune(c.char)
	}
	shown := strings.TrimRight(text.String(), " ")
	if shown == "" {
		return
	}
	how := ""
	switch st := cells[0].style; {
	case st.bold:
		how = ` class="b"`
	case st.dim:
		how = ` class="d"`
	}
	if c := cells[0].colour; c >= 0 {
		how += fmt.Sprintf(` style="fill:%s"`, palette[c])
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%d" textLength="%.1f" xml:space="preserve"%s>`, margin+cellWidth*float64(col), titleBar+cellHeight*row+14,
		cellWidth*float64(len([]rune(shown))), how)
	_ = xml.EscapeText(b, []byte(shown)) // a strings.Builder takes all
	b.WriteString("</text>")
}
