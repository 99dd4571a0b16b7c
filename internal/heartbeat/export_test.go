package heartbeat

import "context"

// Pulse beats and reclaims once.
func (h *Heart) Pulse(ctx context.Context) error { return h.pulse().Next(ctx) }
