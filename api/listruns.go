package api

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/api/page"
	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// The parts of a list of runs, in their order.
const (
	partLive byte = iota
	partHistory
)

// ListRuns implements waterclockv1connect.RunServiceHandler.
func (s *service) ListRuns(ctx context.Context, req *connect.Request[waterclockv1.ListRunsRequest]) (*connect.Response[waterclockv1.ListRunsResponse], error) {
	m, namespace := req.Msg, callerOf(ctx).Namespace
	query := page.Query{Namespace: namespace, Request: m}
	at, err := s.tokens.Open(query, m.GetPageToken())
	if err != nil {
		return nil, err
	}
	l := runList{size: pageSize(m.GetPageSize())}
	if m.GetJobId() == "" {
		err = s.failures(ctx, namespace, at, &l)
	} else {
		err = s.runsOfJob(ctx, namespace, convert.ID(m.GetJobId()), at, &l)
	}
	if err != nil {
		return nil, err
	}
	out := &waterclockv1.ListRunsResponse{Runs: l.runs}
	if l.next != nil {
		out.NextPageToken = s.tokens.Token(query, *l.next)
	}
	return connect.NewResponse(out), nil
}

// runList is a page as it fills. next is where the page after begins; nil where this is the last.
type runList struct {
	size int
	runs []*waterclockv1.Run
	next *page.Position
}

func (l *runList) room() int { return l.size - len(l.runs) }

func (s *service) failures(ctx context.Context, namespace string, at page.Position, l *runList) error {
	rows, err := s.Store.ListFailures(ctx, namespace, store.RunPosition{At: at.At, RunID: at.ID}, l.size+1)
	if err != nil {
		return err
	}
	if len(rows) > l.size {
		rows = rows[:l.size]
		last := rows[l.size-1]
		l.next = &page.Position{Part: partHistory, At: last.EndedAt, ID: last.RunID}
	}
	for i := range rows {
		l.runs = append(l.runs, convert.Ended(&rows[i]))
	}
	return nil
}

func (s *service) runsOfJob(ctx context.Context, namespace string, id uuid.UUID, at page.Position, l *runList) error {
	j, err := s.Store.Job(ctx, namespace, id)
	if err != nil {
		return err
	}
	live := map[uuid.UUID]bool{}
	if at.Part == partLive {
		if live, err = s.liveRuns(ctx, j, at, l); err != nil || l.next != nil {
			return err
		}
		at = page.Position{Part: partHistory}
	}
	return s.pastRuns(ctx, j, at, live, l)
}

// liveRuns puts the runs that have not ended first.
func (s *service) liveRuns(ctx context.Context, j *job.Job, at page.Position, l *runList) (map[uuid.UUID]bool, error) {
	timers, err := s.timers(ctx, j)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(timers, func(a, b store.Timer) int { return newestFirst(a.ScheduledAt, a.RunID, b.ScheduledAt, b.RunID) })
	shown, view := map[uuid.UUID]bool{}, s.view()
	for i := range timers {
		t := &timers[i]
		if at.ID != uuid.Nil && newestFirst(t.ScheduledAt, t.RunID, at.At, at.ID) <= 0 {
			continue
		}
		if l.room() == 0 {
			l.next = &page.Position{Part: partLive, At: timers[i-1].ScheduledAt, ID: timers[i-1].RunID}
			return shown, nil
		}
		shown[t.RunID] = true
		l.runs = append(l.runs, view.Live(t))
	}
	return shown, nil
}

// past is a run or a skip.
type past struct {
	at   time.Time
	id   uuid.UUID
	show func() *waterclockv1.Run
}

// pastRuns merges ended runs with skips.
func (s *service) pastRuns(ctx context.Context, j *job.Job, at page.Position, shown map[uuid.UUID]bool, l *runList) error {
	limit := l.room() + 1
	rows, err := s.Store.ListRuns(ctx, j.ID, store.RunPosition{At: at.At, RunID: at.ID}, limit)
	if err != nil {
		return err
	}
	skips, err := s.Store.ListSkips(ctx, j.ID, at.At, limit)
	if err != nil {
		return err
	}
	items := make([]past, 0, len(rows)+len(skips))
	for i := range rows {
		items = append(items, past{rows[i].ScheduledAt, rows[i].RunID, func() *waterclockv1.Run { return convert.Ended(&rows[i]) }})
	}
	for i := range skips {
		id := job.RunID(j.ID, job.FromSchedule, skips[i].NominalAt, "")
		items = append(items, past{skips[i].NominalAt, id, func() *waterclockv1.Run { return convert.Skipped(j, &skips[i]) }})
	}
	slices.SortFunc(items, func(a, b past) int { return newestFirst(a.at, a.id, b.at, b.id) })
	for i, item := range items {
		if l.room() == 0 {
			l.next = &page.Position{Part: partHistory}
			if i > 0 {
				l.next.At, l.next.ID = items[i-1].at, items[i-1].id
			}
			return nil
		}
		if !shown[item.id] { // it may have ended between the two reads
			l.runs = append(l.runs, item.show())
		}
	}
	return nil
}
