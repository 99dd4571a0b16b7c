//go:build long

package undo_test

import "math"

func init() { seeds, most = 80, math.MaxInt }
