package config

// nearest is the name that word was probably meant to be, or "" where none is near.
func nearest(word string, names []string) string {
	best, least := "", max(2, len(word)/4)+1
	for _, name := range names {
		if d := distance(word, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// didYouMean is the end of a sentence about an unknown word.
func didYouMean(word string, names []string) string {
	if name := nearest(word, names); name != "" {
		return " (did you mean " + name + "?)"
	}
	return ""
}

// distance counts the letters to change, add, drop or swap between two words.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j+1]+1, next[j]+1, row[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
