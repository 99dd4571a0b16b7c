package jobrun_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/jobrun"
	"sexton/internal/pgtest"
)

const every = 30 * time.Second

// takeLines returns the lines that were logged since the last call, each as "message n
// left_out".
func takeLines(t *testing.T, j *pgtest.Journal) []string {
	lines := []string{}
	for text := range strings.Lines(j.Take()) {
		var line map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &line))
		lines = append(lines, fmt.Sprint(line["msg"], " ", line["n"], " ", line[jobrun.LeftOut]))
	}
	return lines
}

func logger(j *pgtest.Journal) (*slog.Logger, *jobrun.Dedup) {
	handler := jobrun.NewDedup(slog.NewJSONHandler(j, nil), every, func(record slog.Record) string {
		group := jobrun.ByMessage(record)
		record.Attrs(func(a slog.Attr) bool {
			if a.Key == "job_id" {
				group = ""
			}
			return true
		})
		return group
	})
	return slog.New(handler), handler
}

func TestOneLinePerMessageAndPeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j pgtest.Journal
		log, _ := logger(&j)
		for n := range 100 {
			log.Error("down", "n", n)
			log.With("queue", "q").Error("down", "n", n)
			<-time.After(1001 * time.Millisecond) // With 1001 ms, no record coincides with the end of a period.
		}
		synctest.Wait()
		require.Equal(t, []string{"down 0 <nil>", "down 29 58", "down 59 59", "down 89 59"}, takeLines(t, &j))
		// The end of the last period writes the last record and starts another period.
		<-time.After(every)
		synctest.Wait()
		require.Equal(t, []string{"down 99 19"}, takeLines(t, &j))
		<-time.After(every)
		synctest.Wait()
		require.Empty(t, takeLines(t, &j))
		log.Error("down", "n", 1)
		require.Equal(t, []string{"down 1 <nil>"}, takeLines(t, &j))
		<-time.After(every)
		synctest.Wait()
		require.Empty(t, takeLines(t, &j), "nothing was left out")
	})
}

func TestDedupWritesUngroupedRecordsAndFlushes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j pgtest.Journal
		log, handler := logger(&j)
		for n := range 3 {
			log.Warn("down", "n", n)
			log.Info("up", "n", n)
			log.Debug("off", "n", n)
			log.Error("down", "n", n, "job_id", 7)
		}
		require.Equal(t, []string{
			"down 0 <nil>", "up 0 <nil>", "down 0 <nil>", "up 1 <nil>", "down 1 <nil>",
			"up 2 <nil>", "down 2 <nil>",
		}, takeLines(t, &j))
		log.Warn("slow", "n", 1)
		require.Equal(t, []string{"slow 1 <nil>"}, takeLines(t, &j), "another message has its own period")
		handler.Flush()
		require.Equal(t, []string{"down 2 1"}, takeLines(t, &j))
		log.Warn("down", "n", 9)
		require.Equal(t, []string{"down 9 <nil>"}, takeLines(t, &j), "Flush ended the earlier periods")
		handler.Flush()
		require.Empty(t, takeLines(t, &j))
	})
}
