package drain_test

import (
	"testing"

	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
