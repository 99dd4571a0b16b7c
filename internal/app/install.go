package app

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"sexton/internal/config"
	"sexton/internal/migrate"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

// install brings databases to the state that a worker needs: migrations and triggers. It returns what bind
// does.
func install(ctx context.Context, c *config.Config, log *slog.Logger) (_ *bound, err error) {
	all, err := open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer all.close()
	for _, schema := range all.schemas() {
		if _, err := migrate.Up(ctx, log, schema); err != nil {
			return nil, err
		}
	}
	b, err := bind(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, db := range b.databases {
		cfg, tracked := riverjobs.Tracking(b.config, db, b.parents[db.Name])
		err := onConnection(ctx, db, func(conn *pgx.Conn) error {
			_, err := triggers.Install(ctx, conn, cfg, tracked)
			return err
		})
		if err != nil {
			b.close()
			return nil, err
		}
	}
	return b, nil
}
