"""The networks of the suite. One more is a function in a file of this folder and a line here."""

from __future__ import annotations

from networks.network import Draw, Network, NetworkInput


def _image(
    title: str,
    builder: str,
    source: str,
    *,
    side: int = 224,
    channels: int = 3,
    parameters: int = 0,
) -> Network:
    """Return a network that reads one image."""
    image = NetworkInput(name="image", shape=(1, channels, side, side))
    return Network(
        title=title, builder=builder, inputs=(image,), parameters=parameters, source=source
    )


def _tokens(length: int, below: int) -> NetworkInput:
    return NetworkInput(name="tokens", shape=(1, length), draw=Draw.TOKENS, below=below)


def _shipped(title: str, *, file: str, image: str = "data_0") -> Network:
    return Network(
        title=title,
        builder=f"shipped:{file}",
        inputs=(NetworkInput(name=image, shape=(1, 3, 224, 224)),),
        source="onnx package",
        is_shipped=True,
    )


NETWORKS: dict[str, Network] = {
    "light_alexnet": _shipped("AlexNet", file="bvlc_alexnet"),
    "light_densenet121": _shipped("DenseNet-121 (onnx)", file="densenet121"),
    "light_inception_v1": _shipped("Inception v1", file="inception_v1"),
    "light_inception_v2": _shipped("Inception v2", file="inception_v2"),
    "light_resnet50": _shipped("ResNet-50 (onnx)", file="resnet50", image="gpu_0/data_0"),
    "light_shufflenet": _shipped("ShuffleNet", file="shufflenet", image="gpu_0/data_0"),
    "light_squeezenet": _shipped("SqueezeNet", file="squeezenet"),
    "light_vgg19": _shipped("VGG-19", file="vgg19"),
    "light_zfnet512": _shipped("ZFNet-512", file="zfnet512", image="gpu_0/data_0"),
    "resnet18": _image("ResNet-18", "residual:resnet18", "arXiv:1512.03385", parameters=11_689_512),
    "resnet34": _image("ResNet-34", "residual:resnet34", "arXiv:1512.03385", parameters=21_797_672),
    "resnet50": _image("ResNet-50", "residual:resnet50", "arXiv:1512.03385", parameters=25_557_032),
    "mobilenet_v2": _image(
        "MobileNetV2", "mobile:mobilenet_v2", "arXiv:1801.04381", parameters=3_504_872
    ),
    "mobilenet_v2_140": _image(
        "MobileNetV2 1.4", "mobile:mobilenet_v2_140", "arXiv:1801.04381", parameters=6_108_776
    ),
    "mobilenet_v3_large": _image(
        "MobileNetV3-L", "mobile:mobilenet_v3_large", "arXiv:1905.02244", parameters=5_483_032
    ),
    "mobilenet_v4_conv_small": _image(
        "MobileNetV4-S",
        "mobile:mobilenet_v4_conv_small",
        "arXiv:2404.10518",
        parameters=3_774_024,
    ),
    "efficientnet_b0": _image(
        "EfficientNet-B0", "mobile:efficientnet_b0", "arXiv:1905.11946", parameters=5_288_548
    ),
    "ghostnet": _image("GhostNet", "mobile:ghostnet", "arXiv:1911.11907", parameters=5_182_508),
    "regnety_008": _image(
        "RegNetY-008", "residual:regnety_008", "arXiv:2003.13678", parameters=6_263_168
    ),
    "densenet121": _image(
        "DenseNet-121", "residual:densenet121", "arXiv:1608.06993", parameters=7_978_856
    ),
    "convnext_tiny": _image(
        "ConvNeXt-tiny", "residual:convnext_tiny", "arXiv:2201.03545", parameters=28_589_128
    ),
    "iresnet50": _image("iResNet-50", "residual:iresnet50", "arXiv:1801.07698", side=112),
    "vit_small": _image(
        "ViT-S/16", "vision_attention:vit_small", "arXiv:2010.11929", parameters=22_050_664
    ),
    "swin_tiny": _image(
        "Swin-T", "vision_attention:swin_tiny", "arXiv:2103.14030", parameters=28_288_354
    ),
    "mobilevit_s": _image(
        "MobileViT-S",
        "vision_attention:mobilevit_s",
        "arXiv:2110.02178",
        side=256,
        parameters=5_578_632,
    ),
    "bert4": Network(
        title="BERT, 4 layers",
        builder="language:bert4",
        inputs=(
            _tokens(128, 30522),
            NetworkInput(name="mask", shape=(1, 128), draw=Draw.MASK),
        ),
        source="arXiv:1810.04805",
    ),
    "bert6": Network(
        title="BERT, 6 layers",
        builder="language:bert6",
        inputs=(
            _tokens(128, 30522),
            NetworkInput(name="mask", shape=(1, 128), draw=Draw.MASK),
        ),
        source="arXiv:1810.04805",
    ),
    "minilm6": Network(
        title="MiniLM, 6 layers",
        builder="language:minilm6",
        inputs=(
            _tokens(32, 30522),
            NetworkInput(name="mask", shape=(1, 32), draw=Draw.MASK),
        ),
        source="arXiv:2002.10957",
    ),
    "yolo_silu": _image(
        "YOLO, SiLU", "detection:yolo_silu", "YOLOv5s 6.0", side=640, parameters=7_235_389
    ),
    "yolo_mish": _image(
        "YOLO, Mish",
        "detection:yolo_mish",
        "YOLOv5s 6.0 with the activation of arXiv:2004.10934",
        side=640,
    ),
    "unet2d": _image(
        "U-Net 2-D", "image_to_image:unet2d", "arXiv:1809.10486", side=256, channels=1
    ),
    "unet3d": Network(
        title="U-Net 3-D",
        builder="image_to_image:unet3d",
        inputs=(NetworkInput(name="volume", shape=(1, 1, 64, 64, 64)),),
        source="arXiv:1809.10486",
    ),
    "deeplab_head": Network(
        title="DeepLab head",
        builder="image_to_image:deeplab_head",
        inputs=(NetworkInput(name="features", shape=(1, 960, 33, 33)),),
        source="arXiv:1706.05587",
    ),
    "espcn": _image("ESPCN", "image_to_image:espcn", "arXiv:1609.05158", channels=1),
    "srvgg": _image(
        "SRVGG", "image_to_image:srvgg", "arXiv:2107.10833", side=96, parameters=621_424
    ),
    "gpt2": Network(
        title="GPT-2",
        builder="language:gpt2",
        inputs=(_tokens(128, 50257),),
        parameters=124_439_808,
        source="Radford et al. 2019",
    ),
    "gpt2_cached": Network(
        title="GPT-2, one token, cache",
        builder="language:gpt2",
        inputs=(
            _tokens(1, 50257),
            *(NetworkInput(name=f"past_{i}", shape=(2, 1, 12, 127, 64)) for i in range(12)),
        ),
        parameters=124_439_808,
        source="Radford et al. 2019",
    ),
    "llama": Network(
        title="LLaMA, 64 tokens",
        builder="decoders:llama",
        inputs=(_tokens(64, 16000),),
        source="arXiv:2302.13971",
    ),
    "llama_cached": Network(
        title="LLaMA, one token, cache",
        builder="decoders:llama",
        inputs=(
            _tokens(1, 16000),
            *(NetworkInput(name=f"past_{i}", shape=(1, 2, 127, 64)) for i in range(12)),
        ),
        source="arXiv:2302.13971",
    ),
    "dlrm": Network(
        title="DLRM, 64 users",
        builder="recommenders:dlrm",
        inputs=(
            NetworkInput(name="dense", shape=(64, 13)),
            NetworkInput(name="sparse", shape=(64, 26), draw=Draw.TOKENS, below=10000),
        ),
        source="arXiv:1906.00091",
    ),
    "whisper_tiny_encoder": Network(
        title="Whisper-tiny encoder",
        builder="audio:whisper_tiny_encoder",
        inputs=(NetworkInput(name="mel", shape=(1, 80, 3000)),),
        source="arXiv:2212.04356",
    ),
    "whisper_tiny_decoder": Network(
        title="Whisper-tiny decoder",
        builder="audio:whisper_tiny_decoder",
        inputs=(_tokens(32, 51865), NetworkInput(name="frames", shape=(1, 1500, 384))),
        source="arXiv:2212.04356",
    ),
    "conformer_block": Network(
        title="Conformer block",
        builder="audio:conformer_block",
        inputs=(NetworkInput(name="frames", shape=(1, 200, 256)),),
        source="arXiv:2005.08100",
    ),
    "hifigan": Network(
        title="HiFi-GAN",
        builder="audio:hifigan",
        inputs=(NetworkInput(name="mel", shape=(1, 80, 32)),),
        source="arXiv:2010.05646",
    ),
    "conv_tasnet": Network(
        title="Conv-TasNet",
        builder="audio:conv_tasnet",
        inputs=(NetworkInput(name="waveform", shape=(1, 1, 8000)),),
        source="arXiv:1809.07454",
    ),
    "ds_cnn": Network(
        title="DS-CNN, keywords",
        builder="audio:ds_cnn",
        inputs=(NetworkInput(name="mfcc", shape=(1, 1, 49, 10)),),
        source="arXiv:1711.07128",
    ),
    "lstm_tagger": Network(
        title="LSTM tagger",
        builder="language:lstm_tagger",
        inputs=(_tokens(64, 20000),),
        source="arXiv:1508.01991",
    ),
    "efficientnet_v2_s": _image(
        "EfficientNetV2-S", "mobile:efficientnet_v2_s", "arXiv:2104.00298", parameters=21_458_488
    ),
    "regnety_016": _image(
        "RegNetY-016", "residual:regnety_016", "arXiv:2003.13678", parameters=11_202_430
    ),
    "repvgg_a0": _image(
        "RepVGG-A0", "reparameterized:repvgg_a0", "arXiv:2101.03697", parameters=8_309_384
    ),
    "mobileone_s1": _image(
        "MobileOne-S1", "reparameterized:mobileone_s1", "arXiv:2206.04040", parameters=4_764_840
    ),
    "convmixer_1024": _image(
        "ConvMixer-1024/20", "mixers:convmixer_1024", "arXiv:2201.09792", parameters=24_383_464
    ),
    "mixer_small": _image(
        "MLP-Mixer S/16", "mixers:mixer_small", "arXiv:2105.01601", parameters=18_528_264
    ),
    "poolformer_s12": _image(
        "PoolFormer-S12", "mixers:poolformer_s12", "arXiv:2111.11418", parameters=11_915_176
    ),
    "pvt_v2_b1": _image(
        "PVT-v2-B1", "efficient_attention:pvt_v2_b1", "arXiv:2106.13797", parameters=14_009_000
    ),
    "edgenext_small": _image(
        "EdgeNeXt-S", "efficient_attention:edgenext_small", "arXiv:2206.10589", parameters=5_586_832
    ),
    "efficientvit_b1": _image(
        "EfficientViT-B1", "efficient_attention:efficientvit_b1", "arXiv:2205.14756"
    ),
}
