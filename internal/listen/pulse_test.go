package listen_test

import (
	"context"
	"testing"

	"sexton/internal/pgtest"
	"sexton/internal/pulse"
)

// The lane's own look never comes, and no notification does.
func TestAPulseLooksForALaneThatSleeps(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]string{
		"due":      "now()",
		"due soon": "clock_timestamp() + interval '300 ms'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := newProbe(b)
			pulses := &pulse.Pulse{On: b.Pool()}
			pulses.Add(p.Ear.Questions()...)
			p.awaitSleep()
			b.Exec("SET sexton.notify = off; INSERT INTO " + table + " (fully_qualified_table_name, primary_key_value, consume_after) VALUES ('x', 1, " + row +
				"); RESET sexton.notify")
			before := p.looks.Load()
			pgtest.WaitFor(t, "a look", func(ctx context.Context) (bool, error) { return p.looks.Load() > before, pulses.Next(ctx) })
			b.requireDrained()
		})
	}
}
