// Package mcpclients holds no code: its tests connect MCP clients that are not ours to the program.
package mcpclients
