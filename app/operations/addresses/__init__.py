"""E-mail addresses that wait to be proven: of accounts that people asked for, and of people who have another one."""
