/** The tiers without an Engine have none to reach, so a test that needs one fails, also where an Engine runs. */
process.env.DOCKER_HOST = "unix:///no-engine-in-this-tier.sock";
