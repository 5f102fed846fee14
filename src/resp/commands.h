/*
 * commands.h: the commands that rdmad knows, and their subcommands. Arity, flags, positions of keys and versions are
 * Redis 7.2's; of DELEX, DIGEST and MSETEX Redis 8.4's, of DELIFEQ Valkey 9.0's. Included by resp/resp.h only.
 */
#ifndef RDMAD_RESP_COMMANDS_H
#define RDMAD_RESP_COMMANDS_H

/* ROW(enum, name, arity, flags, first key, last key, step, group, since, complexity, summary) */
#define RESP_COMMAND_ROWS(ROW)                                                                                         \
	ROW(GET, "get", 2, RESP_READONLY | RESP_FAST, 1, 1, 1, RESP_STRING, "1.0.0", "O(1)",                           \
	    "Returns the value of a key.")                                                                             \
	ROW(SET, "set", -3, RESP_WRITE | RESP_DENYOOM, 1, 1, 1, RESP_STRING, "1.0.0", "O(1)",                          \
	    "Stores a value, with a condition, a time to live and the old value as an answer where asked for.")        \
	ROW(SETNX, "setnx", 3, RESP_WRITE | RESP_DENYOOM | RESP_FAST, 1, 1, 1, RESP_STRING, "1.0.0", "O(1)",           \
	    "Stores a value where the key does not exist.")                                                            \
	ROW(SETEX, "setex", 4, RESP_WRITE | RESP_DENYOOM, 1, 1, 1, RESP_STRING, "2.0.0", "O(1)",                       \
	    "Stores a value that lives for so many seconds.")                                                          \
	ROW(PSETEX, "psetex", 4, RESP_WRITE | RESP_DENYOOM, 1, 1, 1, RESP_STRING, "2.6.0", "O(1)",                     \
	    "Stores a value that lives for so many milliseconds.")                                                     \
	ROW(GETSET, "getset", 3, RESP_WRITE | RESP_DENYOOM | RESP_FAST, 1, 1, 1, RESP_STRING, "1.0.0", "O(1)",         \
	    "Stores a value and returns the one before.")                                                              \
	ROW(GETDEL, "getdel", 2, RESP_WRITE | RESP_FAST, 1, 1, 1, RESP_STRING, "6.2.0", "O(1)",                        \
	    "Returns the value of a key and deletes the key.")                                                         \
	ROW(GETEX, "getex", -2, RESP_WRITE | RESP_FAST, 1, 1, 1, RESP_STRING, "6.2.0", "O(1)",                         \
	    "Returns the value of a key and sets or removes its time to live.")                                        \
	ROW(MGET, "mget", -2, RESP_READONLY | RESP_FAST, 1, -1, 1, RESP_STRING, "1.0.0", "O(N) for N keys",            \
	    "Returns the values of several keys, null for each that does not exist.")                                  \
	ROW(MSET, "mset", -3, RESP_WRITE | RESP_DENYOOM, 1, -1, 2, RESP_STRING, "1.0.1", "O(N) for N keys",            \
	    "Stores several values at once.")                                                                          \
	ROW(MSETNX, "msetnx", -3, RESP_WRITE | RESP_DENYOOM, 1, -1, 2, RESP_STRING, "1.0.1", "O(N) for N keys",        \
	    "Stores several values at once, where none of the keys exists.")                                           \
	ROW(APPEND, "append", 3, RESP_WRITE | RESP_DENYOOM | RESP_FAST, 1, 1, 1, RESP_STRING, "2.0.0",                 \
	    "O(1), and O(N) where the value moves, N being its length",                                                \
	    "Puts bytes at the end of a value, which is made where it does not exist.")                                \
	ROW(STRLEN, "strlen", 2, RESP_READONLY | RESP_FAST, 1, 1, 1, RESP_STRING, "2.2.0", "O(1)",                     \
	    "Returns the length of a value.")                                                                          \
	ROW(GETRANGE, "getrange", 4, RESP_READONLY, 1, 1, 1, RESP_STRING, "2.4.0", "O(N) for N bytes returned",        \
	    "Returns a part of a value.")                                                                              \
	ROW(SUBSTR, "substr", 4, RESP_READONLY, 1, 1, 1, RESP_STRING, "1.0.0", "O(N) for N bytes returned",            \
	    "Returns a part of a value; the old name of GETRANGE.")                                                    \
	ROW(SETRANGE, "setrange", 4, RESP_WRITE | RESP_DENYOOM, 1, 1, 1, RESP_STRING, "2.2.0",                         \
	    "O(N) for N bytes of the argument",                                                                        \
	    "Overwrites a part of a value from an offset on, with zeros before it where the value was shorter.")       \
	ROW(INCR, "incr", 2, RESP_WRITE | RESP_DENYOOM | RESP_FAST, 1, 1, 1, RESP_STRING, "1.0.0", "O(1)",             \
	    "Adds one to a number.")                                                                                   \
	ROW(DECR, "decr", 2, RESP_WRITE | RESP_DENYOOM | RESP_FAST, 1, 1, 1, RESP_STRING, "1.0.0", "O(1)",             \
	    "Subtracts one from a number.")                                                                            \
	ROW(INCRBY, "incrby", 3, RESP_WRITE | RESP_DENYOOM | RESP_FAST, 1, 1, 1, RESP_STRING, "1.0.0", "O(1)",         \
	    "Adds an integer to a number.")                                                                            \
	ROW(DECRBY, "decrby", 3, RESP_WRITE | RESP_DENYOOM | RESP_FAST, 1, 1, 1, RESP_STRING, "1.0.0", "O(1)",         \
	    "Subtracts an integer from a number.")                                                                     \
	ROW(INCRBYFLOAT, "incrbyfloat", 3, RESP_WRITE | RESP_DENYOOM | RESP_FAST, 1, 1, 1, RESP_STRING, "2.6.0",       \
	    "O(1)", "Adds a decimal fraction to a number.")                                                            \
	ROW(DELIFEQ, "delifeq", 3, RESP_WRITE | RESP_FAST, 1, 1, 1, RESP_STRING, "9.0.0", "O(1)",                      \
	    "Deletes a key where it has a given value.")                                                               \
	ROW(DELEX, "delex", -2, RESP_WRITE | RESP_FAST, 1, 1, 1, RESP_STRING, "8.4.0",                                 \
	    "O(1); with IFDEQ and IFDNE O(N) for a value of N bytes",                                                  \
	    "Deletes a key, where its value or the digest of it is or is not a given one.")                            \
	ROW(DIGEST, "digest", 2, RESP_READONLY | RESP_FAST, 1, 1, 1, RESP_STRING, "8.4.0",                             \
	    "O(N) for a value of N bytes", "Returns the XXH3 digest of a value in hexadecimal digits.")                \
	ROW(MSETEX, "msetex", -4, RESP_WRITE | RESP_DENYOOM | RESP_MOVABLE_KEYS, 0, 0, 0, RESP_STRING, "8.4.0",        \
	    "O(N) for N keys", "Stores several values at once, with a condition and a time to live for all.")          \
	ROW(DEL, "del", -2, RESP_WRITE, 1, -1, 1, RESP_GENERIC, "1.0.0", "O(N) for N keys", "Deletes keys.")           \
	ROW(UNLINK, "unlink", -2, RESP_WRITE | RESP_FAST, 1, -1, 1, RESP_GENERIC, "4.0.0", "O(N) for N keys",          \
	    "Deletes keys; their memory is freed later.")                                                              \
	ROW(EXISTS, "exists", -2, RESP_READONLY | RESP_FAST, 1, -1, 1, RESP_GENERIC, "1.0.0", "O(N) for N keys",       \
	    "Counts which of the keys exist; a key that is named twice counts twice.")                                 \
	ROW(TOUCH, "touch", -2, RESP_READONLY | RESP_FAST, 1, -1, 1, RESP_GENERIC, "3.2.1", "O(N) for N keys",         \
	    "Counts which of the keys exist, and marks them as used just now.")                                        \
	ROW(TYPE, "type", 2, RESP_READONLY | RESP_FAST, 1, 1, 1, RESP_GENERIC, "1.0.0", "O(1)",                        \
	    "Returns the type of a key's value.")                                                                      \
	ROW(EXPIRE, "expire", -3, RESP_WRITE | RESP_FAST, 1, 1, 1, RESP_GENERIC, "1.0.0", "O(1)",                      \
	    "Sets the time to live of a key in seconds.")                                                              \
	ROW(PEXPIRE, "pexpire", -3, RESP_WRITE | RESP_FAST, 1, 1, 1, RESP_GENERIC, "2.6.0", "O(1)",                    \
	    "Sets the time to live of a key in milliseconds.")                                                         \
	ROW(EXPIREAT, "expireat", -3, RESP_WRITE | RESP_FAST, 1, 1, 1, RESP_GENERIC, "1.2.0", "O(1)",                  \
	    "Sets the end of a key as a UNIX time in seconds.")                                                        \
	ROW(PEXPIREAT, "pexpireat", -3, RESP_WRITE | RESP_FAST, 1, 1, 1, RESP_GENERIC, "2.6.0", "O(1)",                \
	    "Sets the end of a key as a UNIX time in milliseconds.")                                                   \
	ROW(TTL, "ttl", 2, RESP_READONLY | RESP_FAST, 1, 1, 1, RESP_GENERIC, "1.0.0", "O(1)",                          \
	    "Returns the time that a key has to live, in seconds.")                                                    \
	ROW(PTTL, "pttl", 2, RESP_READONLY | RESP_FAST, 1, 1, 1, RESP_GENERIC, "2.6.0", "O(1)",                        \
	    "Returns the time that a key has to live, in milliseconds.")                                               \
	ROW(EXPIRETIME, "expiretime", 2, RESP_READONLY | RESP_FAST, 1, 1, 1, RESP_GENERIC, "7.0.0", "O(1)",            \
	    "Returns the end of a key as a UNIX time in seconds.")                                                     \
	ROW(PEXPIRETIME, "pexpiretime", 2, RESP_READONLY | RESP_FAST, 1, 1, 1, RESP_GENERIC, "7.0.0", "O(1)",          \
	    "Returns the end of a key as a UNIX time in milliseconds.")                                                \
	ROW(PERSIST, "persist", 2, RESP_WRITE | RESP_FAST, 1, 1, 1, RESP_GENERIC, "2.2.0", "O(1)",                     \
	    "Removes the time to live of a key.")                                                                      \
	ROW(RENAME, "rename", 3, RESP_WRITE, 1, 2, 1, RESP_GENERIC, "1.0.0", "O(1)",                                   \
	    "Gives a key another name; a key of that name is overwritten.")                                            \
	ROW(RENAMENX, "renamenx", 3, RESP_WRITE | RESP_FAST, 1, 2, 1, RESP_GENERIC, "1.0.0", "O(1)",                   \
	    "Gives a key another name, where no key has it.")                                                          \
	ROW(COPY, "copy", -3, RESP_WRITE | RESP_DENYOOM, 1, 2, 1, RESP_GENERIC, "6.2.0",                               \
	    "O(N) for a value of N bytes", "Copies the value of a key to another key.")                                \
	ROW(KEYS, "keys", 2, RESP_READONLY | RESP_DANGEROUS, 0, 0, 0, RESP_GENERIC, "1.0.0",                           \
	    "O(N) for N keys of the database", "Returns all keys whose names match a pattern.")                        \
	ROW(SCAN, "scan", -2, RESP_READONLY, 0, 0, 0, RESP_GENERIC, "2.8.0",                                           \
	    "O(1) for a call, O(N) for a whole walk over N keys", "Walks through the keys, a part with each call.")    \
	ROW(RANDOMKEY, "randomkey", 1, RESP_READONLY, 0, 0, 0, RESP_GENERIC, "1.0.0", "O(1)",                          \
	    "Returns a key by chance.")                                                                                \
	ROW(OBJECT, "object", -2, 0, 0, 0, 0, RESP_GENERIC, "2.2.3", "By its kind",                                    \
	    "Answers questions about how a key is kept.")                                                              \
	ROW(WAIT, "wait", 3, 0, 0, 0, 0, RESP_GENERIC, "3.0.0", "O(1)",                                                \
	    "Waits until replicas have the writes of this connection; there are none here.")                           \
	ROW(HELLO, "hello", -1,                                                                                        \
	    RESP_NOSCRIPT | RESP_LOADING | RESP_STALE | RESP_FAST | RESP_NO_AUTH | RESP_ALLOW_BUSY, 0, 0, 0,           \
	    RESP_CONNECTION, "6.0.0", "O(1)",                                                                          \
	    "Chooses RESP2 or RESP3, and proves and names the client where asked for.")                                \
	ROW(AUTH, "auth", -2, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE | RESP_FAST | RESP_NO_AUTH | RESP_ALLOW_BUSY,  \
	    0, 0, 0, RESP_CONNECTION, "1.0.0", "O(1)", "Proves the client by a name and a password.")                  \
	ROW(PING, "ping", -1, RESP_FAST, 0, 0, 0, RESP_CONNECTION, "1.0.0", "O(1)", "Answers PONG or its argument.")   \
	ROW(ECHO, "echo", 2, RESP_LOADING | RESP_STALE | RESP_FAST, 0, 0, 0, RESP_CONNECTION, "1.0.0", "O(1)",         \
	    "Answers its argument.")                                                                                   \
	ROW(QUIT, "quit", -1, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE | RESP_FAST | RESP_NO_AUTH | RESP_ALLOW_BUSY,  \
	    0, 0, 0, RESP_CONNECTION, "1.0.0", "O(1)", "Ends the connection.")                                         \
	ROW(RESET, "reset", 1, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE | RESP_FAST | RESP_NO_AUTH | RESP_ALLOW_BUSY, \
	    0, 0, 0, RESP_CONNECTION, "6.2.0", "O(1)", "Puts the connection into its first state.")                    \
	ROW(SELECT, "select", 2, RESP_LOADING | RESP_STALE | RESP_FAST, 0, 0, 0, RESP_CONNECTION, "1.0.0", "O(1)",     \
	    "Changes to a database by its number.")                                                                    \
	ROW(CLIENT, "client", -2, 0, 0, 0, 0, RESP_CONNECTION, "2.4.0", "By its kind", "Is about connections.")        \
	ROW(COMMAND, "command", -1, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "2.8.13", "O(N) for N commands",  \
	    "Describes the commands.")                                                                                 \
	ROW(INFO, "info", -1, RESP_LOADING | RESP_STALE | RESP_DANGEROUS, 0, 0, 0, RESP_SERVER, "1.0.0", "O(1)",       \
	    "Returns figures of the server in sections.")                                                              \
	ROW(CONFIG, "config", -2, 0, 0, 0, 0, RESP_SERVER, "2.0.0", "By its kind", "Reads and changes settings.")      \
	ROW(DBSIZE, "dbsize", 1, RESP_READONLY | RESP_FAST, 0, 0, 0, RESP_SERVER, "1.0.0", "O(1)",                     \
	    "Returns the number of keys.")                                                                             \
	ROW(TIME, "time", 1, RESP_LOADING | RESP_STALE | RESP_FAST, 0, 0, 0, RESP_SERVER, "2.6.0", "O(1)",             \
	    "Returns the server's time.")                                                                              \
	ROW(FLUSHDB, "flushdb", -1, RESP_WRITE | RESP_DANGEROUS, 0, 0, 0, RESP_SERVER, "1.0.0",                        \
	    "O(N) for N keys of the database", "Deletes all keys of the database.")                                    \
	ROW(FLUSHALL, "flushall", -1, RESP_WRITE | RESP_DANGEROUS, 0, 0, 0, RESP_SERVER, "1.0.0", "O(N) for N keys",   \
	    "Deletes all keys of all databases.")                                                                      \
	ROW(MEMORY, "memory", -2, 0, 0, 0, 0, RESP_SERVER, "4.0.0", "By its kind",                                     \
	    "Is about the memory that keys take.")                                                                     \
	ROW(LATENCY, "latency", -2, 0, 0, 0, 0, RESP_SERVER, "2.8.13", "By its kind",                                  \
	    "Is about how long commands took.")                                                                        \
	ROW(SLOWLOG, "slowlog", -2, 0, 0, 0, 0, RESP_SERVER, "2.2.12", "By its kind",                                  \
	    "Is about commands that took long.")                                                                       \
	ROW(LASTSAVE, "lastsave", 1, RESP_LOADING | RESP_STALE | RESP_FAST | RESP_DANGEROUS, 0, 0, 0, RESP_SERVER,     \
	    "1.0.0", "O(1)", "Returns when the store was last written to disk, as a UNIX time.")                       \
	ROW(BGSAVE, "bgsave", -1, RESP_ADMIN | RESP_NOSCRIPT | RESP_NO_ASYNC_LOADING, 0, 0, 0, RESP_SERVER, "1.0.0",   \
	    "O(1)", "Writes the store to disk in the background.")                                                     \
	ROW(SAVE, "save", 1, RESP_ADMIN | RESP_NOSCRIPT | RESP_NO_ASYNC_LOADING | RESP_NO_MULTI, 0, 0, 0, RESP_SERVER, \
	    "1.0.0", "O(1)", "Writes the store to disk; it is written in the background.")                             \
	ROW(BGREWRITEAOF, "bgrewriteaof", 1, RESP_ADMIN | RESP_NOSCRIPT | RESP_NO_ASYNC_LOADING, 0, 0, 0, RESP_SERVER, \
	    "1.0.0", "O(1)", "Makes the log short, in the background.")                                                \
	ROW(ROLE, "role", 1, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE | RESP_FAST | RESP_DANGEROUS, 0, 0, 0,          \
	    RESP_SERVER, "2.8.12", "O(1)", "Returns whether the server copies another one, which it does not.")        \
	ROW(MODULE, "module", -2, 0, 0, 0, 0, RESP_SERVER, "4.0.0", "By its kind",                                     \
	    "Is about modules, of which there are none.")                                                              \
	ROW(SHUTDOWN, "shutdown", -1,                                                                                  \
	    RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE | RESP_NO_MULTI | RESP_ALLOW_BUSY, 0, 0, 0,         \
	    RESP_SERVER, "1.0.0", "O(N) for N keys where they are written, else O(1)", "Ends the server.")             \
	ROW(ACL, "acl", -2, 0, 0, 0, 0, RESP_SERVER, "6.0.0", "By its kind", "Is about clients and what they may do.") \
	ROW(DEBUG, "debug", -2, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "1.0.0", \
	    "By its kind", "Serves tests; of its kinds only SLEEP is known.")                                          \
	ROW(CLUSTER, "cluster", -2, 0, 0, 0, 0, RESP_CLUSTER, "3.0.0", "By its kind", "Is about the cluster.")         \
	ROW(ASKING, "asking", 1, RESP_FAST, 0, 0, 0, RESP_CLUSTER, "3.0.0", "O(1)",                                    \
	    "Tells that the next command was redirected here.")                                                        \
	ROW(READONLY, "readonly", 1, RESP_LOADING | RESP_STALE | RESP_FAST, 0, 0, 0, RESP_CLUSTER, "3.0.0", "O(1)",    \
	    "Lets a connection read from a replica of the cluster.")                                                   \
	ROW(READWRITE, "readwrite", 1, RESP_LOADING | RESP_STALE | RESP_FAST, 0, 0, 0, RESP_CLUSTER, "3.0.0", "O(1)",  \
	    "Takes READONLY back.")                                                                                    \
	ROW(MULTI, "multi", 1, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE | RESP_FAST | RESP_ALLOW_BUSY, 0, 0, 0,       \
	    RESP_TRANSACTIONS, "1.2.0", "O(1)", "Begins a transaction.")                                               \
	ROW(EXEC, "exec", 1, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE | RESP_SKIP_SLOWLOG, 0, 0, 0,                   \
	    RESP_TRANSACTIONS, "1.2.0", "By the commands of the transaction",                                          \
	    "Carries out the commands of a transaction.")                                                              \
	ROW(DISCARD, "discard", 1, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE | RESP_FAST | RESP_ALLOW_BUSY, 0, 0, 0,   \
	    RESP_TRANSACTIONS, "2.0.0", "O(N) for N commands of the transaction",                                      \
	    "Forgets the commands of a transaction.")                                                                  \
	ROW(WATCH, "watch", -2, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE | RESP_FAST | RESP_ALLOW_BUSY, 1, -1, 1,     \
	    RESP_TRANSACTIONS, "2.2.0", "O(N) for N keys",                                                             \
	    "Lets the next transaction fail where one of the keys has changed by then.")                               \
	ROW(UNWATCH, "unwatch", 1, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE | RESP_FAST | RESP_ALLOW_BUSY, 0, 0, 0,   \
	    RESP_TRANSACTIONS, "2.2.0", "O(1)", "Forgets all watched keys.")                                           \
	ROW(SUBSCRIBE, "subscribe", -2, RESP_PUBSUB | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,              \
	    RESP_PUBSUB_GROUP, "2.0.0", "O(N) for N channels", "Receives the messages of channels.")                   \
	ROW(UNSUBSCRIBE, "unsubscribe", -1, RESP_PUBSUB | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,          \
	    RESP_PUBSUB_GROUP, "2.0.0", "O(N) for N channels", "Ends the subscriptions of channels.")                  \
	ROW(PSUBSCRIBE, "psubscribe", -2, RESP_PUBSUB | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,            \
	    RESP_PUBSUB_GROUP, "2.0.0", "O(N) for N patterns",                                                         \
	    "Receives the messages of channels whose names match a pattern.")                                          \
	ROW(PUNSUBSCRIBE, "punsubscribe", -1, RESP_PUBSUB | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,        \
	    RESP_PUBSUB_GROUP, "2.0.0", "O(N) for N patterns", "Ends the subscriptions of patterns.")                  \
	ROW(PUBLISH, "publish", 3, RESP_PUBSUB | RESP_LOADING | RESP_STALE | RESP_FAST, 0, 0, 0, RESP_PUBSUB_GROUP,    \
	    "2.0.0", "O(N+M) for N subscribers of the channel and M patterns",                                         \
	    "Sends a message to the subscribers of a channel.")                                                        \
	ROW(PUBSUB, "pubsub", -2, 0, 0, 0, 0, RESP_PUBSUB_GROUP, "2.8.0", "By its kind",                               \
	    "Tells about channels and their subscribers.")                                                             \
	ROW(SSUBSCRIBE, "ssubscribe", -2, RESP_PUBSUB | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 1, -1, 1,           \
	    RESP_PUBSUB_GROUP, "7.0.0", "O(N) for N channels",                                                         \
	    "Receives the messages of channels that belong to a shard.")                                               \
	ROW(SUNSUBSCRIBE, "sunsubscribe", -1, RESP_PUBSUB | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 1, -1, 1,       \
	    RESP_PUBSUB_GROUP, "7.0.0", "O(N) for N channels",                                                         \
	    "Ends the subscriptions of channels that belong to a shard.")                                              \
	ROW(SPUBLISH, "spublish", 3, RESP_PUBSUB | RESP_LOADING | RESP_STALE | RESP_FAST, 1, 1, 1, RESP_PUBSUB_GROUP,  \
	    "7.0.0", "O(N) for N subscribers of the channel",                                                          \
	    "Sends a message to the subscribers of a channel that belongs to a shard.")                                \
	ROW(EVAL, "eval", -3,                                                                                          \
	    RESP_NOSCRIPT | RESP_STALE | RESP_SKIP_MONITOR | RESP_NO_MANDATORY_KEYS | RESP_MOVABLE_KEYS, 0, 0, 0,      \
	    RESP_SCRIPTING, "2.6.0", "By the script", "Runs a script.")                                                \
	ROW(EVALSHA, "evalsha", -3,                                                                                    \
	    RESP_NOSCRIPT | RESP_STALE | RESP_SKIP_MONITOR | RESP_NO_MANDATORY_KEYS | RESP_MOVABLE_KEYS, 0, 0, 0,      \
	    RESP_SCRIPTING, "2.6.0", "By the script", "Runs a script that is known, by its SHA1.")                     \
	ROW(EVAL_RO, "eval_ro", -3,                                                                                    \
	    RESP_READONLY | RESP_NOSCRIPT | RESP_STALE | RESP_SKIP_MONITOR | RESP_NO_MANDATORY_KEYS |                  \
		    RESP_MOVABLE_KEYS,                                                                                 \
	    0, 0, 0, RESP_SCRIPTING, "7.0.0", "By the script", "Runs a script that only reads.")                       \
	ROW(EVALSHA_RO, "evalsha_ro", -3,                                                                              \
	    RESP_READONLY | RESP_NOSCRIPT | RESP_STALE | RESP_SKIP_MONITOR | RESP_NO_MANDATORY_KEYS |                  \
		    RESP_MOVABLE_KEYS,                                                                                 \
	    0, 0, 0, RESP_SCRIPTING, "7.0.0", "By the script",                                                         \
	    "Runs a script that is known and only reads, by its SHA1.")                                                \
	ROW(SCRIPT, "script", -2, 0, 0, 0, 0, RESP_SCRIPTING, "2.6.0", "By its kind",                                  \
	    "Is about the scripts that are known.")                                                                    \
	ROW(FUNCTION, "function", -2, 0, 0, 0, 0, RESP_SCRIPTING, "7.0.0", "By its kind",                              \
	    "Is about functions, which are not supported.")                                                            \
	ROW(HSET, "hset", -4, RESP_WRITE | RESP_DENYOOM | RESP_FAST, 1, 1, 1, RESP_HASH, "2.0.0",                      \
	    "O(N) for N fields that are set", "Sets fields of a hash.")                                                \
	ROW(HGET, "hget", 3, RESP_READONLY | RESP_FAST, 1, 1, 1, RESP_HASH, "2.0.0", "O(1)",                           \
	    "Returns a field of a hash.")                                                                              \
	ROW(HMGET, "hmget", -3, RESP_READONLY | RESP_FAST, 1, 1, 1, RESP_HASH, "2.0.0",                                \
	    "O(N) for N fields that are returned", "Returns several fields of a hash.")                                \
	ROW(HMSET, "hmset", -4, RESP_WRITE | RESP_DENYOOM | RESP_FAST, 1, 1, 1, RESP_HASH, "2.0.0",                    \
	    "O(N) for N fields that are set", "Sets fields of a hash; the old name of HSET.")                          \
	ROW(HGETALL, "hgetall", 2, RESP_READONLY, 1, 1, 1, RESP_HASH, "2.0.0", "O(N) for N fields of the hash",        \
	    "Returns all fields of a hash with their values.")                                                         \
	ROW(HDEL, "hdel", -3, RESP_WRITE | RESP_FAST, 1, 1, 1, RESP_HASH, "2.0.0",                                     \
	    "O(N) for N fields that are deleted", "Deletes fields of a hash, and the hash with the last of them.")     \
	ROW(HEXISTS, "hexists", 3, RESP_READONLY | RESP_FAST, 1, 1, 1, RESP_HASH, "2.0.0", "O(1)",                     \
	    "Tells whether a hash has a field.")                                                                       \
	ROW(HLEN, "hlen", 2, RESP_READONLY | RESP_FAST, 1, 1, 1, RESP_HASH, "2.0.0", "O(1)",                           \
	    "Returns the number of fields of a hash.")                                                                 \
	ROW(HKEYS, "hkeys", 2, RESP_READONLY, 1, 1, 1, RESP_HASH, "2.0.0", "O(N) for N fields of the hash",            \
	    "Returns the names of all fields of a hash.")                                                              \
	ROW(HVALS, "hvals", 2, RESP_READONLY, 1, 1, 1, RESP_HASH, "2.0.0", "O(N) for N fields of the hash",            \
	    "Returns the values of all fields of a hash.")                                                             \
	ROW(HINCRBY, "hincrby", 4, RESP_WRITE | RESP_DENYOOM | RESP_FAST, 1, 1, 1, RESP_HASH, "2.0.0", "O(1)",         \
	    "Adds an integer to a field of a hash.")                                                                   \
	ROW(HINCRBYFLOAT, "hincrbyfloat", 4, RESP_WRITE | RESP_DENYOOM | RESP_FAST, 1, 1, 1, RESP_HASH, "2.6.0",       \
	    "O(1)", "Adds a number to a field of a hash.")                                                             \
	ROW(HSTRLEN, "hstrlen", 3, RESP_READONLY | RESP_FAST, 1, 1, 1, RESP_HASH, "3.2.0", "O(1)",                     \
	    "Returns the length of a field's value.")                                                                  \
	ROW(HRANDFIELD, "hrandfield", -2, RESP_READONLY, 1, 1, 1, RESP_HASH, "6.2.0",                                  \
	    "O(N) for N fields that are returned", "Returns fields of a hash at random.")                              \
	ROW(HSETNX, "hsetnx", 4, RESP_WRITE | RESP_DENYOOM | RESP_FAST, 1, 1, 1, RESP_HASH, "2.0.0", "O(1)",           \
	    "Sets a field of a hash where the hash does not have it.")                                                 \
	ROW(HSCAN, "hscan", -3, RESP_READONLY, 1, 1, 1, RESP_HASH, "2.8.0",                                            \
	    "O(1) for a call, O(N) for a whole walk over N fields",                                                    \
	    "Walks through the fields of a hash, a part with each call.")

/* The subcommands of a command stand together, in the order of the commands. */
#define RESP_SUBCOMMAND_ROWS(ROW)                                                                                      \
	ROW(OBJECT_ENCODING, "object|encoding", 3, RESP_READONLY, 2, 2, 1, RESP_GENERIC, "2.2.3", "O(1)",              \
	    "Returns how a value is kept in memory.")                                                                  \
	ROW(OBJECT_IDLETIME, "object|idletime", 3, RESP_READONLY, 2, 2, 1, RESP_GENERIC, "2.2.3", "O(1)",              \
	    "Returns for how many seconds a key has not been used.")                                                   \
	ROW(OBJECT_FREQ, "object|freq", 3, RESP_READONLY, 2, 2, 1, RESP_GENERIC, "4.0.0", "O(1)",                      \
	    "Returns how often a key is used, on a logarithmic scale.")                                                \
	ROW(OBJECT_REFCOUNT, "object|refcount", 3, RESP_READONLY, 2, 2, 1, RESP_GENERIC, "2.2.3", "O(1)",              \
	    "Returns how many references a value has.")                                                                \
	ROW(OBJECT_HELP, "object|help", 2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_GENERIC, "6.2.0", "O(1)",          \
	    "Lists the kinds of OBJECT.")                                                                              \
	ROW(CLIENT_ID, "client|id", 2, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_CONNECTION, "5.0.0",   \
	    "O(1)", "Returns the number of the connection.")                                                           \
	ROW(CLIENT_INFO, "client|info", 2, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_CONNECTION,        \
	    "6.2.0", "O(1)", "Describes the connection.")                                                              \
	ROW(CLIENT_LIST, "client|list", -2, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,           \
	    RESP_CONNECTION, "2.4.0", "O(N) for N connections", "Describes all connections.")                          \
	ROW(CLIENT_KILL, "client|kill", -3, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,           \
	    RESP_CONNECTION, "2.4.0", "O(N) for N connections", "Ends connections.")                                   \
	ROW(CLIENT_GETNAME, "client|getname", 2, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_CONNECTION,  \
	    "2.6.9", "O(1)", "Returns the name of the connection.")                                                    \
	ROW(CLIENT_SETNAME, "client|setname", 3, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_CONNECTION,  \
	    "2.6.9", "O(1)", "Names the connection.")                                                                  \
	ROW(CLIENT_SETINFO, "client|setinfo", 4, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_CONNECTION,  \
	    "7.2.0", "O(1)", "Tells the name and the version of the client's library.")                                \
	ROW(CLIENT_REPLY, "client|reply", 3, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_CONNECTION,      \
	    "3.2.0", "O(1)", "Says whether commands of the connection are answered.")                                  \
	ROW(CLIENT_NO_EVICT, "client|no-evict", 3, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,    \
	    RESP_CONNECTION, "7.0.0", "O(1)", "Spares the connection when memory is short.")                           \
	ROW(CLIENT_NO_TOUCH, "client|no-touch", 3, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,                 \
	    RESP_CONNECTION, "7.2.0", "O(1)", "Says whether commands of the connection count as uses of keys.")        \
	ROW(CLIENT_PAUSE, "client|pause", -3, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,         \
	    RESP_CONNECTION, "3.0.0", "O(1)", "Holds back the commands of all clients for a time.")                    \
	ROW(CLIENT_UNPAUSE, "client|unpause", 2, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,      \
	    RESP_CONNECTION, "6.2.0", "O(N) for N connections", "Ends CLIENT PAUSE.")                                  \
	ROW(CLIENT_UNBLOCK, "client|unblock", -3, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,     \
	    RESP_CONNECTION, "5.0.0", "O(log N) for N connections",                                                    \
	    "Ends the waiting of another connection's command.")                                                       \
	ROW(CLIENT_TRACKING, "client|tracking", -3, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,                \
	    RESP_CONNECTION, "6.0.0", "O(N) for N prefixes",                                                           \
	    "Says whether the client is told of changes to keys that it keeps copies of.")                             \
	ROW(CLIENT_TRACKINGINFO, "client|trackinginfo", 2, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,         \
	    RESP_CONNECTION, "6.2.0", "O(1)", "Tells how the connection tracks keys.")                                 \
	ROW(CLIENT_CACHING, "client|caching", 3, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_CONNECTION,  \
	    "6.0.0", "O(1)", "Says whether the keys of the next command are tracked.")                                 \
	ROW(CLIENT_GETREDIR, "client|getredir", 2, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,                 \
	    RESP_CONNECTION, "6.0.0", "O(1)",                                                                          \
	    "Returns the number of the connection that is told of changes in place of this one.")                      \
	ROW(CLIENT_HELP, "client|help", 2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_CONNECTION, "5.0.0", "O(1)",       \
	    "Lists the kinds of CLIENT.")                                                                              \
	ROW(COMMAND_COUNT, "command|count", 2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "2.8.13", "O(1)",      \
	    "Returns the number of commands.")                                                                         \
	ROW(COMMAND_INFO, "command|info", -2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "2.8.13",               \
	    "O(N) for N commands", "Describes commands: arity, flags, keys.")                                          \
	ROW(COMMAND_DOCS, "command|docs", -2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "7.0.0",                \
	    "O(N) for N commands", "Describes commands in words.")                                                     \
	ROW(COMMAND_LIST, "command|list", -2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "7.0.0",                \
	    "O(N) for N commands", "Returns the names of commands.")                                                   \
	ROW(COMMAND_GETKEYS, "command|getkeys", -3, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "2.8.13",         \
	    "O(N) for N arguments", "Returns the keys among the words of a command.")                                  \
	ROW(COMMAND_GETKEYSANDFLAGS, "command|getkeysandflags", -3, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER,   \
	    "7.0.0", "O(N) for N arguments",                                                                           \
	    "Returns the keys among the words of a command, and what is done to them.")                                \
	ROW(COMMAND_HELP, "command|help", 2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "5.0.0", "O(1)",         \
	    "Lists the kinds of COMMAND.")                                                                             \
	ROW(CONFIG_GET, "config|get", -3, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,             \
	    RESP_SERVER, "2.0.0", "O(N) for N settings", "Returns the settings whose names match patterns.")           \
	ROW(CONFIG_SET, "config|set", -4, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,             \
	    RESP_SERVER, "2.0.0", "O(N) for N settings", "Changes settings.")                                          \
	ROW(CONFIG_RESETSTAT, "config|resetstat", 2, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,  \
	    RESP_SERVER, "2.0.0", "O(1)", "Sets the counters of INFO to zero.")                                        \
	ROW(CONFIG_REWRITE, "config|rewrite", 2, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,      \
	    RESP_SERVER, "2.8.0", "O(1)", "Writes the settings to their file.")                                        \
	ROW(CONFIG_HELP, "config|help", 2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "5.0.0", "O(1)",           \
	    "Lists the kinds of CONFIG.")                                                                              \
	ROW(MEMORY_USAGE, "memory|usage", -3, RESP_READONLY, 2, 2, 1, RESP_SERVER, "4.0.0", "O(1)",                    \
	    "Returns how many bytes a key and its value take.")                                                        \
	ROW(MEMORY_DOCTOR, "memory|doctor", 2, 0, 0, 0, 0, RESP_SERVER, "4.0.0", "O(1)",                               \
	    "Tells what is wrong with the use of memory.")                                                             \
	ROW(MEMORY_STATS, "memory|stats", 2, 0, 0, 0, 0, RESP_SERVER, "4.0.0", "O(1)",                                 \
	    "Returns figures of the use of memory.")                                                                   \
	ROW(MEMORY_HELP, "memory|help", 2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "4.0.0", "O(1)",           \
	    "Lists the kinds of MEMORY.")                                                                              \
	ROW(LATENCY_LATEST, "latency|latest", 2, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,      \
	    RESP_SERVER, "2.8.13", "O(1)", "Returns the latest events that took long.")                                \
	ROW(LATENCY_HISTOGRAM, "latency|histogram", -2, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0,  \
	    0, RESP_SERVER, "7.0.0", "O(N) for N commands", "Returns how long commands took, as histograms.")          \
	ROW(LATENCY_RESET, "latency|reset", -2, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,       \
	    RESP_SERVER, "2.8.13", "O(1)", "Forgets events that took long.")                                           \
	ROW(LATENCY_HISTORY, "latency|history", 3, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,    \
	    RESP_SERVER, "2.8.13", "O(1)", "Returns how long events of a kind took.")                                  \
	ROW(LATENCY_DOCTOR, "latency|doctor", 2, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,      \
	    RESP_SERVER, "2.8.13", "O(1)", "Tells why commands take long.")                                            \
	ROW(LATENCY_HELP, "latency|help", 2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "2.8.13", "O(1)",        \
	    "Lists the kinds of LATENCY.")                                                                             \
	ROW(SLOWLOG_GET, "slowlog|get", -2, RESP_ADMIN | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "2.2.12",    \
	    "O(N) for N entries", "Returns the commands that took long.")                                              \
	ROW(SLOWLOG_LEN, "slowlog|len", 2, RESP_ADMIN | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "2.2.12",     \
	    "O(1)", "Returns the number of commands that are kept because they took long.")                            \
	ROW(SLOWLOG_RESET, "slowlog|reset", 2, RESP_ADMIN | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "2.2.12", \
	    "O(N) for N entries", "Forgets the commands that took long.")                                              \
	ROW(SLOWLOG_HELP, "slowlog|help", 2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "6.2.0", "O(1)",         \
	    "Lists the kinds of SLOWLOG.")                                                                             \
	ROW(ACL_CAT, "acl|cat", -2, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "6.0.0", "O(1)",  \
	    "Lists the categories of commands, or the commands of one.")                                               \
	ROW(ACL_GETUSER, "acl|getuser", 3, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0,            \
	    RESP_SERVER, "6.0.0", "O(N) for N rules", "Returns what a client may do.")                                 \
	ROW(ACL_LIST, "acl|list", 2, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER,     \
	    "6.0.0", "O(N) for N clients", "Lists the clients and what they may do.")                                  \
	ROW(ACL_USERS, "acl|users", 2, RESP_ADMIN | RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER,   \
	    "6.0.0", "O(N) for N clients", "Lists the names of the clients.")                                          \
	ROW(ACL_WHOAMI, "acl|whoami", 2, RESP_NOSCRIPT | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "6.0.0",     \
	    "O(1)", "Returns the name that the connection has proved.")                                                \
	ROW(ACL_HELP, "acl|help", 2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SERVER, "6.0.0", "O(1)",                 \
	    "Lists the kinds of ACL.")                                                                                 \
	ROW(CLUSTER_INFO, "cluster|info", 2, RESP_STALE, 0, 0, 0, RESP_CLUSTER, "3.0.0", "O(1)",                       \
	    "Describes the state of the cluster.")                                                                     \
	ROW(CLUSTER_KEYSLOT, "cluster|keyslot", 3, RESP_STALE, 0, 0, 0, RESP_CLUSTER, "3.0.0",                         \
	    "O(N) for a key of N bytes", "Returns the slot of a key.")                                                 \
	ROW(CLUSTER_MYID, "cluster|myid", 2, RESP_STALE, 0, 0, 0, RESP_CLUSTER, "3.0.0", "O(1)",                       \
	    "Returns the identity of the node.")                                                                       \
	ROW(CLUSTER_NODES, "cluster|nodes", 2, RESP_STALE, 0, 0, 0, RESP_CLUSTER, "3.0.0", "O(N) for N nodes",         \
	    "Describes the nodes of the cluster.")                                                                     \
	ROW(CLUSTER_SHARDS, "cluster|shards", 2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_CLUSTER, "7.0.0",            \
	    "O(N) for N nodes", "Lists the shards, with their slots and nodes.")                                       \
	ROW(CLUSTER_SLOTS, "cluster|slots", 2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_CLUSTER, "3.0.0",              \
	    "O(N) for N nodes", "Lists the ranges of slots, with their nodes.")                                        \
	ROW(CLUSTER_COUNTKEYSINSLOT, "cluster|countkeysinslot", 3, RESP_STALE, 0, 0, 0, RESP_CLUSTER, "3.0.0",         \
	    "O(N) for N keys of the server", "Returns the number of keys of a slot.")                                  \
	ROW(CLUSTER_GETKEYSINSLOT, "cluster|getkeysinslot", 4, RESP_STALE, 0, 0, 0, RESP_CLUSTER, "3.0.0",             \
	    "O(N) for N keys of the server", "Returns keys of a slot.")                                                \
	ROW(CLUSTER_HELP, "cluster|help", 2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_CLUSTER, "5.0.0", "O(1)",        \
	    "Lists the kinds of CLUSTER.")                                                                             \
	ROW(PUBSUB_CHANNELS, "pubsub|channels", -2, RESP_PUBSUB | RESP_LOADING | RESP_STALE, 0, 0, 0,                  \
	    RESP_PUBSUB_GROUP, "2.8.0", "O(N) for N channels", "Lists the channels that have subscribers.")            \
	ROW(PUBSUB_NUMSUB, "pubsub|numsub", -2, RESP_PUBSUB | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_PUBSUB_GROUP,   \
	    "2.8.0", "O(N) for N channels", "Returns the number of subscribers of channels.")                          \
	ROW(PUBSUB_NUMPAT, "pubsub|numpat", 2, RESP_PUBSUB | RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_PUBSUB_GROUP,    \
	    "2.8.0", "O(1)", "Returns the number of patterns that have subscribers.")                                  \
	ROW(PUBSUB_SHARDCHANNELS, "pubsub|shardchannels", -2, RESP_PUBSUB | RESP_LOADING | RESP_STALE, 0, 0, 0,        \
	    RESP_PUBSUB_GROUP, "7.0.0", "O(N) for N channels", "Lists the channels of shards that have subscribers.")  \
	ROW(PUBSUB_SHARDNUMSUB, "pubsub|shardnumsub", -2, RESP_PUBSUB | RESP_LOADING | RESP_STALE, 0, 0, 0,            \
	    RESP_PUBSUB_GROUP, "7.0.0", "O(N) for N channels",                                                         \
	    "Returns the number of subscribers of channels of shards.")                                                \
	ROW(PUBSUB_HELP, "pubsub|help", 2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_PUBSUB_GROUP, "6.2.0", "O(1)",     \
	    "Lists the kinds of PUBSUB.")                                                                              \
	ROW(SCRIPT_LOAD, "script|load", 3, RESP_NOSCRIPT | RESP_STALE, 0, 0, 0, RESP_SCRIPTING, "2.6.0",               \
	    "O(N) for a script of N bytes", "Makes a script known and returns its SHA1.")                              \
	ROW(SCRIPT_EXISTS, "script|exists", -3, RESP_NOSCRIPT, 0, 0, 0, RESP_SCRIPTING, "2.6.0", "O(N) for N scripts", \
	    "Tells which scripts are known, by their SHA1.")                                                           \
	ROW(SCRIPT_FLUSH, "script|flush", -2, RESP_NOSCRIPT, 0, 0, 0, RESP_SCRIPTING, "2.6.0", "O(N) for N scripts",   \
	    "Forgets all scripts.")                                                                                    \
	ROW(SCRIPT_KILL, "script|kill", 2, RESP_NOSCRIPT | RESP_ALLOW_BUSY, 0, 0, 0, RESP_SCRIPTING, "2.6.0", "O(1)",  \
	    "Ends the script that runs.")                                                                              \
	ROW(SCRIPT_HELP, "script|help", 2, RESP_LOADING | RESP_STALE, 0, 0, 0, RESP_SCRIPTING, "5.0.0", "O(1)",        \
	    "Lists the kinds of SCRIPT.")                                                                              \
	ROW(MODULE_LIST, "module|list", 2, RESP_ADMIN | RESP_NOSCRIPT, 0, 0, 0, RESP_SERVER, "4.0.0", "O(1)",          \
	    "Lists the modules.")                                                                                      \
	ROW(FUNCTION_FLUSH, "function|flush", -2, RESP_WRITE | RESP_NOSCRIPT, 0, 0, 0, RESP_SCRIPTING, "7.0.0",        \
	    "O(1)", "Deletes all functions, of which there are none.")

#define ROW(id, ...) RESP_CMD_##id,
enum resp_id {
	RESP_COMMAND_ROWS(ROW) RESP_COMMANDS,
	RESP_BEFORE_SUBCOMMANDS = RESP_COMMANDS - 1,
	RESP_SUBCOMMAND_ROWS(ROW) RESP_IDS
};
#undef ROW

#endif
