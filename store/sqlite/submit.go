package sqlite

import (
	"bytes"
	"context"
	"slices"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// Submit implements store.Submitter.
func (s *Store) Submit(ctx context.Context, subs []store.Submission) ([]store.SubmitResult, error) {
	if len(subs) == 0 {
		return nil, nil
	}
	results := make([]store.SubmitResult, len(subs))
	err := s.write(ctx, 3*len(subs), func(c *conn) error {
		for i := range subs {
			var err error
			if results[i], err = c.submit(&subs[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (c *conn) submit(sub *store.Submission) (store.SubmitResult, error) {
	made, err := c.insertJob(sub.Job)
	if err != nil {
		return store.SubmitResult{}, err
	}
	if !made {
		return c.refuse(sub)
	}
	if len(sub.Job.Payload) > 0 {
		if err := c.setPayload(sub.Job); err != nil {
			return store.SubmitResult{}, err
		}
	}
	if sub.Timer != nil {
		if _, err := c.insertTimer(sub.Timer); err != nil {
			return store.SubmitResult{}, err
		}
	}
	return store.SubmitResult{Job: storedJob(sub.Job)}, nil
}

// refuse tells why a job could not be made. Its id counts before its name: who repeats a submit finds the job that he made.
func (c *conn) refuse(sub *store.Submission) (store.SubmitResult, error) {
	there, err := c.fullJob(sub.Job.ID)
	switch {
	case err != nil:
		return store.SubmitResult{}, err
	case there == nil:
		return store.SubmitResult{Err: store.ErrNameTaken}, nil
	case there.Namespace != sub.Job.Namespace || !bytes.Equal(there.BodyHash, sub.Job.BodyHash):
		return store.SubmitResult{Err: store.ErrKeyReused}, nil
	}
	return store.SubmitResult{Job: there, Existed: true}, nil
}

// apply writes what a decision about a job asks for, except for what only ChangeJob may do: see applyAll. It returns the timers that were not there yet.
func (c *conn) apply(change *store.Change) (put []store.Timer, err error) {
	if change.Job != nil {
		if err := c.applyJob(change.Job, change.PayloadChanged); err != nil {
			return nil, err
		}
	}
	for i := range change.Put {
		made, err := c.insertTimer(&change.Put[i])
		if err != nil {
			return nil, err
		}
		if made {
			put = append(put, stored(change.Put[i]))
		}
	}
	for i := range change.Runs {
		if err := c.insertRun(&change.Runs[i]); err != nil {
			return nil, err
		}
	}
	for i := range change.Skips {
		if err := c.insertSkip(&change.Skips[i]); err != nil {
			return nil, err
		}
	}
	return put, nil
}

func (c *conn) applyJob(j *job.Job, payload bool) error {
	if err := c.setJob(j); err != nil {
		if isUnique(err) {
			return store.ErrNameTaken
		}
		return err
	}
	if payload {
		return c.setPayload(j)
	}
	return nil
}

// applyAll writes a whole change: what goes away makes room for what comes.
func (c *conn) applyAll(change *store.Change) error {
	for i := range change.Remove {
		if err := c.deleteTimer(&change.Remove[i]); err != nil {
			return err
		}
	}
	for i := range change.Set {
		if err := c.setTimer(&change.Set[i]); err != nil {
			return err
		}
	}
	_, err := c.apply(change)
	return err
}

func sortTimers(ts []store.Timer) {
	slices.SortFunc(ts, func(a, b store.Timer) int {
		if c := a.DueAt.Compare(b.DueAt); c != 0 {
			return c
		}
		return a.Compare(b.TimerKey)
	})
}
