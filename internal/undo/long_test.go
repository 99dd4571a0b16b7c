//go:build long

package undo_test

func init() { seeds = 80 }
