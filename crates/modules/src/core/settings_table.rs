//! Every setting of Kamailio's core and of SER's, and what becomes of it here.
//!
//! A setting is *honoured* (it has its effect), *harmless* (it speaks of something that this server does not have, so
//! that ignoring it changes no message: the checker notes it) or *refused* (ignoring it would change what happens:
//! the checker says what to do instead). Some are harmless with one value and refused with another.

use crate::table::{Setting, Shape};
use route::{DefaultValue, ValueKind};

macro_rules! settings {
    ($($class:ident $($name:literal)|+, $kind:tt, $doc:literal;)*) => {
        /// The table, sorted by what the settings are about.
        pub(crate) static SETTINGS: &[Setting] =
            &[$($(Setting::$class($name, settings!(% $kind), settings!(@ $class $doc))),+),*];
    };
    // A setting that is honoured where it is off only says so.
    (@ only_off $doc:literal) => { concat!("It can only be off here: ", $doc) };
    (@ $class:ident $doc:literal) => { $doc };
    // With its default and unit.
    (% ($kind:ident $default:literal $unit:literal)) => {
        Shape { default: DefaultValue::Int($default), unit: $unit, ..settings!(% $kind) }
    };
    // With the integers that it accepts, too.
    (% ($kind:ident $default:literal $unit:literal $low:literal $high:literal)) => {
        Shape { range: Some(($low, $high)), ..settings!(% ($kind $default $unit)) }
    };
    (% Protocol) => { Shape { default: DefaultValue::Str("TCP"), ..Shape::of(ValueKind::Str) } };
    (% Bool) => { Shape::of(ValueKind::Bool) };
    (% Int) => { Shape::of(ValueKind::Int) };
    (% Str) => { Shape::of(ValueKind::Str) };
    (% Server) => { Shape { default: DefaultValue::Str("Server: strowger"), ..Shape::of(ValueKind::Str) } };
    (% Any) => { Shape::of(ValueKind::Any) };
    (% Listen) => { Shape::of(ValueKind::Socket) };
    (% Port) => { Shape { range: Some((1, 65_535)), ..Shape::of(ValueKind::Int) } };
    (% Branches) => { Shape { range: Some((1, 31)), ..Shape::of(ValueKind::Int) } };
    (% Level) => { Shape { range: Some((-5, 9)), ..Shape::of(ValueKind::Int) } };
}

settings! {
    // --- where to listen and what this server is called --------------------------------------------------------
    honoured "listen", Listen, "An address to listen on: PROTOCOL:ADDRESS:PORT, where PROTOCOL is `udp` (which may be left out), `tcp`, `tls`, `ws` (WebSocket) or `wss` (WebSocket over TLS), and ADDRESS an address, an interface's name or `*`; may be repeated. `advertise HOST:PORT` after it is what other elements are told instead. Without a port it is that of `port`, for `tls` 5061, for `ws` 80, for `wss` 443.";
    honoured "port", (Port 5060 ""), "The port of the `listen` addresses by UDP and TCP that name none.";
    honoured "alias" | "domain", Listen, "A name of this server, HOST, HOST:PORT or PROTOCOL:HOST:PORT: a URI with it is `myself`; may be repeated.";
    honoured "advertised_address", Any, "The host that Via and Record-Route carry instead of the listening address, where `listen` has no `advertise`.";
    honoured "advertised_port", Port, "The port that Via and Record-Route carry instead of the listening port.";
    harmless "auto_aliases", Bool, "names are never looked up in the reverse DNS; every name of this server is an `alias`.";
    harmless "auto_bind_ipv6", Bool, "IPv6 addresses are listened on when a `listen` names them.";
    only_off "bind_ipv6_link_local", Int, "link-local addresses cannot be listened on; name a global or unique local one.";
    only_off "ip_free_bind" | "ipfreebind" | "ip_nonlocal_bind", Int, "an address must be present before it is listened on; set net.ipv4.ip_nonlocal_bind=1 in the system.";
    only_off "mhomed", Bool, "a request leaves by the listener it came by, or the first of its destination's kind; several networks need a `listen` each.";
    harmless "socket_workers", Int, "listeners have no processes of their own; see --shards.";
    refused "mcast", Str, "multicast groups are not joined.";
    harmless "mcast_loopback", Bool, "nothing is sent to multicast groups.";
    harmless "mcast_ttl", Int, "nothing is sent to multicast groups.";
    only_off "tos", Any, "packets carry the system's type of service; mark them in the firewall (nftables `ip dscp set`).";
    harmless "pmtu_discovery", Int, "the system decides whether datagrams may be fragmented.";

    // --- SIP ------------------------------------------------------------------------------------------------------
    harmless "check_via", Bool, "a response whose topmost Via is not ours is always dropped (RFC 3261 section 16.7).";
    honoured "server_signature", (Bool 1 ""), "Whether responses made here carry a Server header.";
    honoured "server_header", Server, "The Server header line of responses made here, `Server: NAME` in full.";
    harmless "user_agent_header", Str, "no request is originated here, so none needs a User-Agent.";
    only_off "sip_warning", Int, "responses carry no Warning header with internals of the server.";
    honoured "max_branches", (Branches 31 "targets"), "Targets that one request may have.";
    only_off "phone2tel", Int, "a URI with user=phone is not turned into a tel: URI by itself; assign to $ru where it shall be.";
    only_off "reply_to_via", Bool, "responses go where the request came from (RFC 3581) or where RFC 3261 section 18.2.2 says.";
    honoured "force_rport", (Bool 0 ""), "Whether responses go to the port that the request came from even where its client did not ask for that (RFC 3581), as `force_rport()` does for one request.";
    honoured "local_rport", (Bool 0 ""), "Whether our own Via asks for `rport` (RFC 3581), as `add_local_rport()` does for one request.";
    honoured "udp_mtu", (Int 1300 "bytes" 0 65535), "The longest request that leaves by UDP where the next hop's URI names no transport; a longer one leaves by `udp_mtu_try_proto` (RFC 3261 section 18.1.1), and by UDP all the same if the next hop cannot be reached so, which is remembered for a minute. 0: all leave by UDP.";
    honoured "udp_mtu_try_proto", Protocol, "What a request takes that is longer than `udp_mtu`, if there is a listener for it: TCP, TLS, or UDP, that is nothing else.";
    only_off "onsend_route_reply", Bool, "there is no onsend_route.";
    only_off "uri_host_extra_chars", Str, "host names are letters, digits, `-`, `.` and `_`.";
    harmless "http_reply_hack" | "http_reply_parse", Bool, "HTTP is not spoken on SIP's ports.";
    refused "xavp_via_params", Str, "the Via's parameters come from no variable.";
    refused "xavp_via_fields", Str, "the Via's fields come from no variable.";
    refused "via_params", Str, "the Via's parameters are the server's own.";
    harmless "route_locks_size", Int, "messages of one call are handled in order by one shard.";
    harmless "max_while_loops", Int, "a run is bounded by its steps (100,000), whatever its loops do.";
    harmless "max_recursive_level", Int, "routes may call routes to a depth of 100.";
    harmless "received_route_mode", Int, "there is no event route for received bytes.";
    harmless "msg_time", Int, "$TS is the time at which a message arrived.";
    harmless "latency_cfg_log", Int, "the time that messages take is not measured.";
    harmless "latency_log", Int, "the time that messages take is not measured.";
    harmless "latency_limit_db", Int, "no message waits for a database.";
    harmless "latency_limit_action", Int, "the time that messages take is not measured.";
    harmless "latency_limit_cfg", Int, "the time that messages take is not measured.";
    harmless "pv_buffer_size", Int, "strings of variables grow as needed, up to a limit per message.";
    harmless "pv_buffer_slots", Int, "strings of variables grow as needed, up to a limit per message.";
    harmless "pv_cache_limit", Int, "variables are resolved when the file is loaded.";
    harmless "pv_cache_action", Int, "variables are resolved when the file is loaded.";
    harmless "maxbuffer" | "maxsndbuffer", Int, "socket buffers are sized to what the system allows.";
    harmless "sql_buffer_size", Int, "no statement is built in a buffer of fixed size.";
    harmless "server_id", Int, "nodes share nothing yet that would need to tell them apart.";

    // --- processes, memory, the system -------------------------------------------------------------------------------
    harmless "children", Int, "there are no worker processes; see --shards.";
    harmless "fork", Bool, "the server stays in the foreground; systemd or a shell's `&` put it elsewhere.";
    harmless "fork_delay", Int, "there are no worker processes.";
    harmless "modinit_delay", Int, "modules are part of the program.";
    harmless "async_workers", Int, "a script that waits occupies no worker.";
    harmless "async_usleep", Int, "a script that waits occupies no worker.";
    harmless "async_nonblock", Int, "a script that waits occupies no worker.";
    harmless "async_workers_group", Str, "a script that waits occupies no worker.";
    harmless "async_tkv_evcb" | "async_tkv_gname" | "async_tkv_timeout", Any, "a script that waits occupies no worker.";
    harmless "loadpath" | "mpath", Str, "modules are part of the program.";
    refused "user" | "uid", Any, "start the server as that user (systemd: User=).";
    refused "group" | "gid", Any, "start the server as that group (systemd: Group=).";
    refused "chroot", Str, "start the server in that directory (systemd: RootDirectory=).";
    harmless "workdir" | "wdir", Str, "nothing is read or written relative to a working directory.";
    harmless "rundir" | "run_dir", Str, "nothing is written to a run-time directory yet.";
    harmless "disable_core_dump", Bool, "the system decides about core dumps (systemd: LimitCORE=).";
    harmless "open_files_limit", Int, "the system decides about open files (systemd: LimitNOFILE=).";
    harmless "exit_timeout" | "ser_kill_timeout", Int, "see --drain-timeout.";
    harmless "wait_worker1_mode" | "wait_worker1_time" | "wait_worker1_usleep", Int, "there are no worker processes.";
    harmless "shm" | "shm_mem" | "shm_mem_size", Int, "memory is taken as needed; tables have limits by number.";
    harmless "shm_force_alloc", Bool, "memory is taken as needed.";
    harmless "mlock_pages", Bool, "memory is not locked (systemd: LimitMEMLOCK= alone does not either).";
    harmless "memdbg" | "mem_dbg", Int, "there is no allocator of our own to debug.";
    harmless "memlog" | "mem_log", Int, "there is no allocator of our own to debug.";
    harmless "mem_summary", Int, "there is no allocator of our own to debug.";
    harmless "mem_safety", Int, "there is no allocator of our own to debug.";
    harmless "mem_join", Int, "there is no allocator of our own to debug.";
    harmless "mem_status_mode", Int, "there is no allocator of our own to debug.";
    harmless "sr_mem_add_size", Int, "there is no allocator of our own.";
    harmless "real_time", Int, "priorities are the system's (systemd: CPUSchedulingPolicy=).";
    harmless "rt_prio" | "rt_policy" | "rt_timer1_prio" | "rt_fast_timer_prio" | "rt_ftimer_prio" | "rt_timer1_policy" | "rt_ftimer_policy" | "rt_timer2_prio" | "rt_stimer_prio" | "rt_timer2_policy" | "rt_stimer_policy", Int, "priorities are the system's (systemd: CPUSchedulingPolicy=).";
    harmless "wtimer", Int, "timers have no process of their own.";
    harmless "statistics", Str, "counters are always on; SIGUSR1 writes them to the log.";
    harmless "stats_name_separator", Str, "counters are named as they are.";
    harmless "description" | "descr" | "desc", Str, "a note to the reader of the file.";
    harmless "verbose_startup", Bool, "the start says what is listened on.";
    harmless "version_table", Str, "there is no database yet.";
    harmless "config_path" | "cfg_path", Str, "the file is the one of the command line.";
    refused "cfgengine", Str, "routes are written in this language.";
    refused "kemi", Any, "routes are written in this language.";
    harmless "fifo" | "fifo_mode" | "fifo_dir" | "unixsock" , Any, "there is no command interface on a FIFO yet.";

    // --- logs -----------------------------------------------------------------------------------------------------------
    honoured "debug", (Level 1 ""), "How much is logged: 3 and more is debug, 2 info, 1 notice, 0 warnings, -1 errors.";
    honoured "log_stderror" | "log_stderr", Bool, "Whether the log goes to the standard error stream, where it goes anyway.";
    harmless "log_facility", Str, "the log goes to the standard error stream; journald tells programs apart.";
    harmless "log_name", Str, "the log goes to the standard error stream; journald tells programs apart.";
    harmless "log_color", Bool, "the log is coloured on a terminal.";
    harmless "log_prefix", Str, "log lines carry what happened and where, no prefix of their own.";
    harmless "log_prefix_mode", Int, "log lines carry no prefix of their own.";
    harmless "log_engine_type" | "log_engine_data", Str, "the log goes to the standard error stream.";
    harmless "corelog" | "core_log", Int, "what `debug` says holds for all messages of the log.";
    harmless "loglevel", Int, "see `debug`.";

    // --- names -----------------------------------------------------------------------------------------------------------
    harmless "dns", Bool, "host names in URIs are resolved when they are needed, and only then.";
    only_off "rev_dns", Bool, "addresses are not looked up in the reverse DNS.";
    harmless "dns_try_ipv6", Bool, "IPv6 addresses are used where a listener can reach them.";
    harmless "dns_try_naptr", Bool, "NAPTR is not asked yet; A and AAAA are.";
    harmless "dns_srv_lb" | "dns_srv_loadbalancing", Bool, "SRV is not asked yet; A and AAAA are.";
    harmless "dns_udp_pref" | "dns_udp_preference" | "dns_tcp_pref" | "dns_tcp_preference" | "dns_tls_pref" | "dns_tls_preference" | "dns_sctp_pref" | "dns_sctp_preference", Int, "NAPTR is not asked yet; A and AAAA are.";
    harmless "dns_retr_time" | "dns_retr_no" | "dns_servers_no", Int, "the resolver follows the system's configuration.";
    harmless "dns_slow_query_ms", Int, "no message waits while another's name is being resolved.";
    harmless "dns_use_search_list" | "dns_search_full_match", Bool, "names in URIs are complete.";
    harmless "dns_naptr_ignore_rfc", Bool, "NAPTR is not asked yet; A and AAAA are.";
    harmless "dns_cache_init" | "use_dns_cache" | "use_dns_failover" | "dns_cache_flags" | "dns_cache_negative_ttl" | "dns_cache_min_ttl" | "dns_cache_max_ttl" | "dns_cache_mem" | "dns_cache_gc_interval" | "dns_cache_del_nonexp" | "dns_cache_delete_nonexpired" | "dns_cache_rec_pref", Any, "answers of the resolver are kept for 30 seconds.";
    harmless "dst_blacklist_init" | "use_dst_blacklist" | "dst_blacklist_mem" | "dst_blacklist_expire" | "dst_blacklist_ttl" | "dst_blacklist_gc_interval" | "dst_blacklist_udp_imask" | "dst_blacklist_tcp_imask" | "dst_blacklist_tls_imask" | "dst_blacklist_sctp_imask" | "dst_blocklist_init" | "use_dst_blocklist" | "dst_blocklist_mem" | "dst_blocklist_expire" | "dst_blocklist_ttl" | "dst_blocklist_gc_interval" | "dst_blocklist_udp_imask" | "dst_blocklist_tcp_imask" | "dst_blocklist_tls_imask" | "dst_blocklist_sctp_imask", Any, "no list of unreachable destinations is kept.";

    // --- TCP, TLS, WebSocket ----------------------------------------------------------------------------------------------
    honoured "disable_tcp", (Bool 0 ""), "Whether nothing is listened on but UDP, whatever `listen` says.";
    honoured "enable_tls" | "tls_enable", (Bool 1 ""), "Whether the `listen` addresses of TLS and of WebSocket over TLS count; the certificates are the module tls's.";
    honoured "disable_tls" | "tls_disable", (Bool 0 ""), "Whether the `listen` addresses of TLS and of WebSocket over TLS do not count.";
    honoured "tcp_max_connections", (Int 65536 "connections" 1 4194304), "Connections at once, of all streams but TLS. For a further one the one is closed that has been idle longest, if there is an idle one; else the new one is.";
    honoured "tls_max_connections", (Int 65536 "connections" 1 4194304), "Connections by TLS at once, as `tcp_max_connections`.";
    honoured "tcp_max_connections_per_source", (Int 4096 "connections" 1 4194304), "Connections of one address at once; a further one is closed.";
    honoured "tcp_connection_lifetime", (Int 120 "s" 1 31536000), "How long a connection may be idle. A phone that can only be reached by its connection is lost when that is closed: make it longer than the interval of its keep-alives or registrations.";
    honoured "tcp_connect_timeout", (Int 10 "s" 1 3600), "How long a connection may take to be opened; then what waits for it has failed.";
    honoured "tcp_send_timeout", (Int 10 "s" 1 3600), "How long a peer may take nothing of what is sent to it; then its connection is closed.";
    honoured "tcp_msg_read_timeout", (Int 20 "s" 1 3600), "How long a message may take from its first to its last byte; then its connection is closed.";
    honoured "tcp_conn_wq_max", (Int 262144 "bytes" 4096 1073741824), "What may wait to be written to one connection; past it the connection is closed.";
    honoured "tcp_wq_max", (Int 67108864 "bytes" 65536 1099511627776), "What may wait to be written to all connections of a shard together; past it what is sent fails.";
    honoured "tcp_connect_queue_max", (Int 1024 "messages" 1 1048576), "Messages that may wait for one connection that is being opened; a further one fails.";
    honoured "tcp_keepalive", (Bool 1 ""), "Whether the system probes idle connections, so that dead ones are noticed.";
    honoured "tcp_keepidle", (Int 60 "s" 1 32767), "How long a connection is idle before it is probed.";
    honoured "tcp_keepintvl", (Int 10 "s" 1 32767), "The time between two probes.";
    honoured "tcp_keepcnt", (Int 3 "probes" 1 127), "Probes without an answer after which a connection is dead.";
    honoured "tcp_accept_aliases", (Bool 0 ""), "Whether `alias` in the topmost Via of a request by TCP makes its connection one for requests to its sender (RFC 5923). On a shared address one host can take another's calls so. By TLS only `force_tcp_alias()` does it, where the script has checked whose certificate it is.";
    honoured "tcp_no_connect", (Bool 0 ""), "Whether no connections are opened: only those are used that peers have opened.";
    only_off "tcp_source_ipv4" | "tcp_source_ipv6", Str, "connections leave from the address of their listener, or from the one that the system chooses.";
    only_off "tcp_accept_hep3", Bool, "HEP is not spoken on SIP's ports.";
    only_off "tcp_accept_haproxy", Bool, "the PROXY protocol is not understood; the sender's address is the connection's.";
    harmless "tcp_accept_no_cl", Bool, "a message by WebSocket needs no Content-Length, and by TCP or TLS none can be told from the next one without it.";
    harmless "tcp_crlf_ping", Bool, "a keep-alive (RFC 5626 section 3.5.1) is always answered.";
    harmless "tcp_connection_match", Int, "a connection is found by its peer's address and port.";
    harmless "tcp_accept_unique", Bool, "several connections of one peer are kept; requests take the newest.";
    harmless "tcp_children" | "tcp_main_threads", Any, "connections belong to shards, see --shards.";
    harmless "tcp_poll_method" | "tcp_fd_cache" | "tcp_buf_write" | "tcp_async" | "tcp_rd_buf_size" | "tcp_wq_blk_size" | "tcp_wait_data" | "tcp_clone_rcvbuf" | "tcp_script_mode" | "tcp_check_timer", Any, "nothing ever waits for a connection, and an idle one holds no buffers.";
    harmless "tcp_defer_accept" | "tcp_delayed_ack" | "tcp_syncnt" | "tcp_linger2" | "tcp_reuse_port", Any, "the system's ways with sockets are good as they are; change them by sysctl where they are not.";
    harmless "tls_port_no", Int, "the port is in `listen`: tls:ADDRESS:PORT.";
    harmless "tlslog" | "tls_log" | "tls_handshake_timeout" | "tls_send_timeout" | "ksr_tls_threads_mode", Any, "the module tls and `tcp_send_timeout` say what holds for TLS.";
    refused "tls_method" | "tls_verify" | "tls_require_certificate" | "tls_certificate" | "tls_private_key" | "tls_ca_list", Any, "load the module tls and set its parameter: modparam(\"tls\", \"certificate\", \"FILE\").";
    harmless "disable_sctp", Bool, "SCTP is not there; a `listen=sctp:` is an error.";
    only_off "enable_sctp", Int, "SCTP is not there.";
    harmless "sctp_children" | "sctp_socket_rcvbuf" | "sctp_socket_sndbuf" | "sctp_autoclose" | "sctp_send_ttl" | "sctp_send_retries", Any, "SCTP is not there; a `listen=sctp:` is an error.";
    harmless "stun_refresh_interval" | "stun_allow_stun" | "stun_allow_fp", Int, "STUN is not answered on SIP's ports.";
    harmless "udp4_raw" | "udp4_raw_mtu" | "udp4_raw_ttl", Any, "datagrams leave by the socket that listens.";
}
