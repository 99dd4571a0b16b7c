package run

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program goes on without the pages of its file that it had read.
func TestPagesOfTheProgramAreDropped(t *testing.T) {
	t.Parallel()
	resident := func() (kib int) {
		status, err := os.ReadFile("/proc/self/status")
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		_, err = fmt.Sscan(rest, &kib)
		require.NoError(t, err)
		return kib
	}
	before := resident()
	dropPages()
	require.Less(t, resident(), before)
}
