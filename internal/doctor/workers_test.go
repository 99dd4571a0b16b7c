package doctor_test

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"sexton/internal/doctor"
	"sexton/internal/problem"
)

const enter = "INSERT INTO sexton.clients (client_id, host, pid, started_at, seen_at, deaf) VALUES "

// work examines the workers, who follow a schedule of every minute.
func (p *patient) work() *doctor.Report {
	p.t.Helper()
	minutely, err := cron.ParseStandard("* * * * *")
	require.NoError(p.t, err)
	report := doctor.NewReport()
	doctor.ExamineWorkers(p.t.Context(), report, doctor.Workers{
		Target: p.target, Silence: time.Minute, Schedules: []doctor.Schedule{{Kind: "tidy", Database: "main", Times: minutely}},
	})
	return report
}

func TestNoWorker(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.Exec(enter + "('dead', 'h', 1, now() - interval '1 hour', now() - interval '2 minutes', '{}')")
	p.Exec("INSERT INTO sexton.schedules VALUES ('tidy', 'main', now() - interval '1 day')")
	report := p.work()
	found := pick(t, report, "workers")
	require.Len(t, found, 1)
	require.Equal(t, problem.Info, found[0].Severity)
	require.Equal(t, "sexton run", found[0].Fix)
	require.Equal(t, doctor.Check{Check: "schedules", Database: "main", Result: doctor.Skipped}, report.Checks[1])
}

func TestADeafWorker(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.Exec(enter + "('hears', 'h', 1, now(), now(), '{}'), ('deaf', 'h', 2, now(), now(), '{tidy/main}')")
	found := pick(t, p.work(), "workers")
	require.Len(t, found, 1)
	require.Equal(t, problem.Warning, found[0].Severity)
	require.Equal(t, "deaf", found[0].Object)
	require.Contains(t, found[0].Message, "tidy/main")
}

func TestSchedulesThatDoNotTick(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.Exec(enter + "('old', 'h', 1, now() - interval '1 hour', now(), '{}'), ('new', 'h', 2, now(), now(), '{}')")
	found := pick(t, p.work(), "schedules")
	require.Len(t, found, 1)
	require.Equal(t, problem.Warning, found[0].Severity)
	require.Equal(t, "tidy/main", found[0].Object)
	require.Contains(t, found[0].Message, "it ticked never")
	require.Contains(t, found[0].Fix, "log of worker old")

	p.Exec("INSERT INTO sexton.schedules VALUES ('tidy', 'main', '2026-01-02T03:04:00Z')")
	require.Contains(t, pick(t, p.work(), "schedules")[0].Message, "it ticked last at 2026-01-02T03:04:00Z")
	p.Exec("UPDATE sexton.schedules SET last_tick = now() - interval '90 seconds'")
	require.Empty(t, pick(t, p.work(), "schedules"))
	p.Exec("UPDATE sexton.schedules SET last_tick = now() - interval '1 day'; DELETE FROM sexton.clients WHERE client_id = 'old'")
	require.Empty(t, pick(t, p.work(), "schedules"), "the worker has just started")
}
