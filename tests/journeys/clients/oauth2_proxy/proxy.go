//go:build tools

// Package proxy pins the version of oauth2-proxy, whose documentation is at https://oauth2-proxy.github.io/oauth2-proxy/.
package proxy

import _ "github.com/oauth2-proxy/oauth2-proxy/v7"
