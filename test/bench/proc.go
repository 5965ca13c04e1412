package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// What /proc tells. On a system without it, memory is 0 and not compared with an aim.

// field reads "NAME: 123 kB" from a file, in bytes.
func field(path, name string) (float64, bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(raw)) {
		rest, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
		return n * 1024, err == nil
	}
	return 0, false
}

// peakMemory is the most memory that this process ever had, in bytes.
func peakMemory() int64 {
	n, _ := field("/proc/self/status", "VmHWM")
	return int64(n)
}

type processMemory struct{ pss, rss float64 }

func memoryOf(pid int) (processMemory, error) {
	file := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	pss, ok := field(file, "Pss")
	rss, ok2 := field(file, "Rss")
	if !ok || !ok2 {
		return processMemory{}, fmt.Errorf("%s cannot be read", file)
	}
	return processMemory{pss, rss}, nil
}

// memoryOfAll is what this process and its children take together (PSS: what is shared is divided), and each child's.
func memoryOfAll() (total float64, children []processMemory, err error) {
	for i, pid := range append([]int{os.Getpid()}, childrenOf()...) {
		m, err := memoryOf(pid)
		if err != nil {
			return 0, nil, err
		}
		total += m.pss
		if i > 0 {
			children = append(children, m)
		}
	}
	return total, children, nil
}

// stat returns the fields of /proc/PID/stat from the state on.
func stat(pid string) []string {
	raw, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
}

// childrenOf lists this process's children that live.
func childrenOf() []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	self := strconv.Itoa(os.Getpid())
	var pids []int
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if f := stat(name); len(f) > 1 && f[1] == self && f[0] != "Z" {
			pid, _ := strconv.Atoi(name)
			pids = append(pids, pid)
		}
	}
	return pids
}

// processorTime is what all of them have used, in ticks.
func processorTime(pids []int) float64 {
	sum := 0.0
	for _, pid := range pids {
		if f := stat(strconv.Itoa(pid)); len(f) > 12 {
			user, _ := strconv.ParseFloat(f[11], 64)
			system, _ := strconv.ParseFloat(f[12], 64)
			sum += user + system
		}
	}
	return sum
}
