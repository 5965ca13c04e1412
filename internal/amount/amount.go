// Package amount words how much there is of something, for people.
package amount

import "strconv"

// Of gives a number with what there is so much of: "1 CPU", "2 CPUs", "0.5 CPUs". unit is the word for one, to which an s is added for any
// other number.
func Of[N int | int64 | float64](n N, unit string) string {
	text := strconv.FormatFloat(float64(n), 'f', -1, 64)
	if n == 1 {
		return text + " " + unit
	}
	return text + " " + unit + "s"
}
