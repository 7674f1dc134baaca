package webcall

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestForbiddenAddresses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.0.9", "168.63.129.16", "169.254.169.254", "172.16.0.1",
		"172.31.255.255", "192.0.0.192", "192.168.1.1", "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "192.88.99.1",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1",
		"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:1::1", "2001:db8::1", "100::1", "4000::1",
	} {
		if forbidden(netip.MustParseAddr(text)) == "" {
			t.Errorf("%s is let through", text)
		}
	}
	for _, text := range []string{"1.1.1.1", "8.8.8.8", "100.63.255.255", "172.32.0.1", "192.169.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "64:ff9b::808:808"} {
		if why := forbidden(netip.MustParseAddr(text)); why != "" {
			t.Errorf("%s is refused as %s", text, why)
		}
	}
}

// TestPrivateIsRefused goes by the real rules, over every spelling of this machine.
func TestPrivateIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	dns := &names{next: map[string][]string{"inner.test.": {"127.0.0.1"}, "metadata.test.": {"169.254.169.254"}, "lan.test.": {"192.168.0.1"}}}
	c := tidy(t, newCaller(Config{resolver: dns.resolver()}))
	for _, host := range []string{"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "localhost", "inner.test", "metadata.test", "lan.test", "169.254.169.254"} {
		r, err := do(t, c, `{"url":"http://`+host+":"+s.port(t)+`/"}`)
		var refused *forbiddenError
		if !errors.As(err, &refused) || !judge(err).Fatal || r.result != nil {
			t.Errorf("%s: got %v, want a fatal refusal", host, err)
		}
	}
	if n := s.hits.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

func TestPrivateMayBeAllowed(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("in")) })
	r, err := do(t, open(t), `{"url":"`+s.URL+`"}`)
	if err != nil || string(r.result) != "in" {
		t.Errorf("got %q, %v", r.result, err)
	}
}

// TestRebinding: a name that was public a moment ago is not when it is connected to.
func TestRebinding(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
	dns := &names{next: map[string][]string{"rebind.test.": {"127.0.0.1", "127.0.0.2"}}}
	c := tidy(t, newCaller(Config{resolver: dns.resolver(), forbidden: onlyFirst}))
	payload := `{"url":"http://rebind.test:` + s.port(t) + `/"}`
	if _, err := do(t, c, payload); err != nil {
		t.Fatalf("while it is public: %v", err)
	}
	_, err := do(t, c, payload)
	var refused *forbiddenError
	if !errors.As(err, &refused) || refused.address != netip.MustParseAddr("127.0.0.2") || !judge(err).Fatal {
		t.Errorf("after it changed: %v, want a fatal refusal of 127.0.0.2", err)
	}
	if n := s.hits.Load(); n != 1 {
		t.Errorf("%d requests arrived, want 1", n)
	}
}

func TestRedirectToPrivate(t *testing.T) {
	t.Parallel()
	inner := serve(t, func(http.ResponseWriter, *http.Request) {})
	for _, target := range []string{"http://127.0.0.2:" + inner.port(t), "http://[::1]:" + inner.port(t), "http://inner.test:" + inner.port(t)} {
		outer := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target, http.StatusFound) })
		dns := &names{next: map[string][]string{"inner.test.": {"127.0.0.3"}}}
		c := tidy(t, newCaller(Config{resolver: dns.resolver(), forbidden: onlyFirst}))
		_, err := do(t, c, `{"method":"GET","url":"`+outer.URL+`"}`)
		var refused *forbiddenError
		if !errors.As(err, &refused) || !judge(err).Fatal || outer.hits.Load() != 1 {
			t.Errorf("%s: got %v, want a fatal refusal", target, err)
		}
	}
	if n := inner.hits.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

// TestProxyIsIgnored changes the environment, so it is not parallel.
func TestProxyIsIgnored(t *testing.T) {
	proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	dns := &names{next: map[string][]string{"lan.test.": {"192.168.0.1"}}}
	c := tidy(t, newCaller(Config{resolver: dns.resolver()}))
	if _, err := do(t, c, `{"url":"http://lan.test/"}`); err == nil || !strings.Contains(err.Error(), "private") || proxy.hits.Load() != 0 {
		t.Errorf("got %v and %d requests at the proxy", err, proxy.hits.Load())
	}
}
