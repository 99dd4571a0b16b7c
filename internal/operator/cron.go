package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/words"
)

// Leader is the worker whose River client follows the schedules for all.
type Leader struct {
	Leader string    `json:"leader"`
	Until  time.Time `json:"until"`
	// Unled are the schedules that the leader does not have and other workers have.
	Unled []Unled `json:"unled,omitempty"`
}

// Unled is a schedule without ticks: the worker that leads has another configuration than the workers that have it.
type Unled struct {
	Kind     string   `json:"kind"`
	Database string   `json:"database"`
	Workers  []string `json:"workers"`
}

func (s Unled) String() string {
	return fmt.Sprintf("%s of %s has no ticks: the leader's configuration lacks it, that of %s has it", s.Kind, s.Database, words.Listed(s.Workers))
}

// readLeader returns nil where no worker leads.
func readLeader(ctx context.Context, jobs database.Database, silence time.Duration) (*Leader, error) {
	var l Leader
	err := jobs.Pool.QueryRow(ctx, jobs.Names.Render(sqlText("leader"))).Scan(&l.Leader, &l.Until)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // no leader is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("read who leads cron: %w", err)
	}
	rows, err := jobs.Pool.Query(ctx, jobs.Names.Render(sqlText("unled")), l.Leader, silence.Seconds())
	if err != nil {
		return nil, fmt.Errorf("read schedules of workers: %w", err)
	}
	if l.Unled, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Unled]); err != nil {
		return nil, fmt.Errorf("read schedules of workers: %w", err)
	}
	return &l, nil
}

func (l *Leader) String() string {
	if l == nil {
		return "cron is led by no worker"
	}
	said := []string{fmt.Sprintf("cron is led by %s until %s", l.Leader, l.Until.UTC().Format(time.RFC3339))}
	for _, s := range l.Unled {
		said = append(said, s.String())
	}
	return strings.Join(said, "\n")
}
