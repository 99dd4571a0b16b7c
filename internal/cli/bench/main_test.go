package bench_test

import (
	"testing"

	"sexton/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }
