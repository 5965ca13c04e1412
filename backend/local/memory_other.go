//go:build !linux

package local

// memoryDir is "": only Linux has a directory in memory that every user may write to.
func memoryDir() string { return "" }
