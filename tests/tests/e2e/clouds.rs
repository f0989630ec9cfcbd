//! Scenarios that are the same on every cloud.

/// Makes a test on each cloud, in the modules `equinix` and `cherry`, of each of these scenarios: functions that take a
/// [`CloudApi`](groundplane_tests::CloudApi). Where names of tests stand behind one, each with its [`Mode`](groundplane_tests::Mode), they
/// take that, too.
macro_rules! on_each_cloud {
    (@cloud $module:ident $cloud:ident: $($scenario:ident $([$($test:ident: $mode:ident),+])?,)+) => {
        mod $module {
            $($crate::clouds::on_each_cloud!(@tests $cloud $scenario $([$($test: $mode),+])?);)+
        }
    };
    (@tests $cloud:ident $scenario:ident) => {
        #[tokio::test]
        async fn $scenario() -> anyhow::Result<()> {
            super::$scenario(groundplane_tests::CloudApi::$cloud).await
        }
    };
    (@tests $cloud:ident $scenario:ident [$($test:ident: $mode:ident),+]) => {
        $(
            #[tokio::test]
            async fn $test() -> anyhow::Result<()> {
                super::$scenario(groundplane_tests::CloudApi::$cloud, groundplane_tests::Mode::$mode).await
            }
        )+
    };
    ($($scenarios:tt)+) => {
        $crate::clouds::on_each_cloud!(@cloud equinix Equinix: $($scenarios)+);
        $crate::clouds::on_each_cloud!(@cloud cherry Cherry: $($scenarios)+);
    };
}

pub(crate) use on_each_cloud;
