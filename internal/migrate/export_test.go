package migrate

import (
	"context"
	"fmt"
	"log/slog"
)

// UpTo installs every component at the given version, or at its newest where that is lower: what an earlier release has
// left behind.
func UpTo(ctx context.Context, log *slog.Logger, db Database, version int64) error {
	return withSession(ctx, log, db, func(s *session) error {
		look, err := s.inspect(ctx)
		if err != nil {
			return err
		}
		if err := s.createRegistry(ctx, look); err != nil {
			return err
		}
		for _, c := range db.components() {
			if err := s.upTo(ctx, c, min(version, latest(c))); err != nil {
				return fmt.Errorf("install %s at version %d: %w", c.name(), version, err)
			}
		}
		return nil
	})
}

func (s *session) upTo(ctx context.Context, c component, version int64) error {
	own, ok := c.(sqlComponent)
	if !ok {
		// River's versions are River's to test; no release of Sexton came with an older one.
		_, err := c.up(ctx, s)
		return err
	}
	provider, err := own.provider(s)
	if err != nil {
		return err
	}
	_, err = provider.UpTo(ctx, version)
	return err
}

// NewestVersion is the highest version that any component of Sexton's own has.
func NewestVersion() int64 {
	var newest int64
	for _, v := range Versions() {
		if v.Component != River {
			newest = max(newest, v.Version)
		}
	}
	return newest
}
