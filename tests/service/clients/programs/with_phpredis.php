<?php
/* with_phpredis.php HOST PORT: phpredis: values, a pipeline, a transaction, a script, messages, and PHP's sessions. */
[, $host, $port] = $argv;
function check(string $what, bool $right): void
{
	if (!$right) {
		fwrite(STDERR, "FAILED: $what\n");
		exit(1);
	}
}

$r = new Redis();
check('connect', $r->connect($host, (int)$port, 60));
$binary = implode('', array_map('chr', range(0, 255)));
check('set', $r->set('php:a', $binary, ['nx', 'ex' => 100]) === true && $r->set('php:a', 'x', ['nx']) === false);
check('get', $r->get('php:a') === $binary && $r->strlen('php:a') === 256 && $r->get('php:none') === false);
check('ttl', $r->ttl('php:a') > 90 && $r->persist('php:a') && $r->ttl('php:a') === -1 && $r->pExpire('php:a', 50000));
check('setex', $r->setex('php:b', 60, '1') && !$r->setnx('php:b', '2') && $r->incrBy('php:b', 41) === 42);
check('float', $r->incrByFloat('php:f', 0.25) === 0.25);
check('mget', $r->mset(['php:m1' => '1', 'php:m2' => "\0\r\n"]) && $r->mget(['php:m1', 'php:x', 'php:m2']) === ['1', false, "\0\r\n"]);
check('pipeline', $r->pipeline()->set('php:p', 1)->incr('php:p')->get('php:p')->exec() === [true, 2, '2']);
check('multi', $r->multi()->set('php:t', 'x')->expire('php:t', 60)->get('php:t')->exec() === [true, true, 'x']);
$other = new Redis();
$other->pconnect($host, (int)$port, 60, 'php');
$r->watch('php:t');
$other->set('php:t', 'y');
check('watch', $r->multi()->set('php:t', 'z')->exec() === false && $r->get('php:t') === 'y');
$release = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
check('eval', $r->eval($release, ['php:t', 'z'], 1) === 0 && $r->evalSha(sha1($release), ['php:t', 'y'], 1) === 1);
$r->setOption(Redis::OPT_SCAN, Redis::SCAN_RETRY);
for ($found = [], $at = null; ($keys = $r->scan($at, 'php:m*')) !== false; $found = array_merge($found, $keys));
sort($found);
check('scan', $found === ['php:m1', 'php:m2']);
$kept = new Redis();
$kept->connect($host, (int)$port, 60);
$kept->setOption(Redis::OPT_SERIALIZER, Redis::SERIALIZER_PHP);
$kept->setOption(Redis::OPT_PREFIX, 'php:kept:');
check('objects', $kept->set('o', ['of' => [1, null]]) && $kept->get('o') === ['of' => [1, null]] && $r->exists('php:kept:o') === 1);
check('info', $r->info()['redis_version'] === '7.2.4' || getenv('ANOTHER_SERVER'));

/* A subscriber never returns: it is another process, which says what it heard. */
$child = pcntl_fork();
if ($child === 0) {
	$listener = new Redis();
	$listener->connect($host, (int)$port, 60);
	$listener->setOption(Redis::OPT_READ_TIMEOUT, 60);
	$listener->subscribe(['php:ch'], function ($redis, $channel, $message) use ($host, $port) {
		$teller = new Redis();
		$teller->connect($host, (int)$port, 60);
		$teller->set('php:heard', $message);
		posix_kill(posix_getpid(), SIGKILL); /* it does not end the connections of its parent */
	});
	exit(1);
}
for ($until = time() + 60; $r->publish('php:ch', $binary) < 1 && time() < $until; usleep(10000));
pcntl_waitpid($child, $status);
check('a message', $r->get('php:heard') === $binary);

ini_set('session.save_handler', 'redis');
ini_set('session.save_path', "tcp://$host:$port?prefix=php:session:");
ini_set('redis.session.locking_enabled', '1');
ini_set('redis.session.lock_expire', '60');
ini_set('session.use_cookies', '0');
ini_set('session.cache_limiter', '');
session_id('of-a-test');
session_start();
$_SESSION['user'] = 7;
session_write_close();
check('a session', strpos($r->get('php:session:of-a-test'), 'user') === 0 && $r->ttl('php:session:of-a-test') > 0);
$_SESSION = [];
session_start();
check('the session again', $_SESSION['user'] === 7);
session_destroy();
check('the end of the session', $r->exists('php:session:of-a-test', 'php:session:of-a-test_LOCK') === 0);
